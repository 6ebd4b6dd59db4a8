"""What a reader must know before believing the numbers of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments import workloads
from experiments.config.errors import ConfigError
from experiments.stats.step_interval import LEAST_STEPS, TOO_SHORT
from tasks.analysis.cell import Cell
from tasks.analysis.results import TrialRow
from tasks.report.text_format import listed, percent, plural

WORTH_NAMING = 0.02  # a drift of step times that never settled


def cautions(rows: Sequence[TrialRow], cells: Sequence[Cell], *, emulated: bool) -> list[str]:
    """In the order of how much they concern all numbers. `rows`: of the whole sweep; `cells`: those that the report shows."""
    measured = [cell for cell in cells if cell.estimate]
    return [
        *_of_repeats(measured),
        *_of_length(measured),
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


def _of_length(cells: Sequence[Cell]) -> list[str]:
    """Names the cells whose only trial says nothing of how sure its rate is."""
    short = [cell.name for cell in cells if len(cell.measured) == 1 and cell.measured[0].too_short]
    if not short:
        return []
    why = f"fewer than {LEAST_STEPS} steps, or steps that follow each other too closely (effective_steps)"
    return [f"The window was {TOO_SHORT} how sure the rate is, in {listed(short)}: {why}. --set measure_s=30 makes it longer."]


def _of_settling(cells: Sequence[Cell]) -> list[str]:
    lines = []
    unsettled = [cell.name for cell in cells if not all(row.summary.get("settled") for row in cell.measured)]
    if unsettled:
        lines.append(f"Step times never settled in {plural(len(unsettled), 'cell')}: {'; '.join(unsettled)}.")
    lines += _of_drift([row for cell in cells for row in cell.measured])
    late = [row.trial.name for cell in cells for row in cell.measured if _settled_late(row)]
    if late:
        lines.append(f"Step times settled only inside the measured window in {'; '.join(late)}: a longer warm-up would cut that off.")
    return lines


def _of_drift(rows: Sequence[TrialRow]) -> list[str]:
    """Names the trials whose step times drifted over the window."""
    drifts = {row.trial.name: row.summary.get("drift") or 0.0 for row in rows if row.summary.get("settled") is False}
    return [
        f"Step times {'rose' if drift > 0 else 'fell'} by {percent(abs(drift))} over the window in {name}."
        for name, drift in drifts.items()
        if abs(drift) >= WORTH_NAMING
    ]


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
