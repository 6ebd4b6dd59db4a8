"""What a reader must know before believing the numbers of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments import workloads
from experiments.config.errors import ConfigError
from tasks.analysis.cell import Cell
from tasks.analysis.results import TrialRow
from tasks.report.spread_caution import of_unknown_spread
from tasks.report.text_format import plural


def cautions(rows: Sequence[TrialRow], cells: Sequence[Cell], *, emulated: bool) -> list[str]:
    """In the order of how much they concern all numbers. `rows`: of the whole sweep; `cells`: those that the report shows."""
    measured = [cell for cell in cells if cell.estimate]
    return [
        *_of_repeats(measured),
        *([] if emulated else of_unknown_spread(measured)),
        *_of_settling(measured),
        *_of_loss_parity(cells),
        *_of_media_pipe(cells),
        *(caveat for name in dict.fromkeys(row.trial.workload for row in rows) if (caveat := _caveat(name))),
        *_of_emulation(sum(row.emulated for row in rows), emulated=emulated),
    ]


def _of_repeats(cells: Sequence[Cell]) -> list[str]:
    if not cells or max(len(cell.measured) for cell in cells) > 1:
        return []
    return ["Each cell ran once: the intervals hold what varies between steps, not between trials; --repeats 3 measures that too."]


def _of_settling(cells: Sequence[Cell]) -> list[str]:
    lines = []
    unsettled = [cell.name for cell in cells if not all(row.summary.get("settled") for row in cell.measured)]
    if unsettled:
        lines.append(f"Step times never settled in {plural(len(unsettled), 'cell')}: {'; '.join(unsettled)}.")
    late = [row.trial.name for cell in cells for row in cell.measured if _settled_late(row)]
    if late:
        lines.append(f"Step times settled only inside the measured window in {'; '.join(late)}: a longer warm-up would cut that off.")
    return lines


def _settled_late(row: TrialRow) -> bool:
    """Whether step times settled after the window's first step. False where the steps are gone."""
    settled_at = row.summary.get("settled_at_step")
    return settled_at is not None and row.steps.size > 0 and settled_at > int(row.trial.parameters.get("warmup_steps", 0)) + 1


def _of_loss_parity(cells: Sequence[Cell]) -> list[str]:
    outside = [f"{cell.name}: {cell.parity_note}." for cell in cells if cell.parity_note and not cell.claimed]
    ungated = Counter(cell.parity_note for cell in cells if cell.parity_note and cell.claimed)
    return [*outside, *(f"Loss parity could not be checked for {plural(count, 'cell')}: {note}." for note, count in ungated.items())]


def _of_media_pipe(cells: Sequence[Cell]) -> list[str]:
    fallen = [row.trial.name for cell in cells for row in cell.rows if str(row.environment.get("media_pipe", "")).startswith("fallback")]
    return [f"The media pipe could not be used, and the DataLoader decoded the images, in {'; '.join(fallen)}."] if fallen else []


def _caveat(workload: str) -> str:
    """What a workload says of all its results (CAVEAT in its file); nothing where the workload no longer exists."""
    try:
        return str(getattr(workloads.load(workload), "CAVEAT", ""))
    except ConfigError:
        return ""


def _of_emulation(count: int, *, emulated: bool) -> list[str]:
    if not count:
        return []
    alone = "shown here alone, because it was asked for."
    hidden = "left out; `sweep report --emulated` shows them by themselves."
    return [f"{plural(count, 'trial')} ran on an emulated device, which measures nothing: {alone if emulated else hidden}"]
