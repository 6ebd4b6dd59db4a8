"""Section: spikes of the loss and of RMS_t in each cell. tasks/report/figures/loss_spikes.py draws them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.metric import Scale
from experiments.metrics import metric_of
from experiments.stats.loss_spikes import LossSpikes, Rule, find_spikes, rise
from tasks.analysis.cell import Cell, mean_on
from tasks.analysis.trial_row import TrialRow
from tasks.report import provoked_spikes
from tasks.report.cell_names import names_among
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.text_format import OUTCOMES, number, percent, plural, quantity

ABOUT = (
    "RMS spike: RMS_t of the tensor is at least 2.3. Loss spike: at least two losses above the mean of the 100 before by 3.2 of their "
    "standard deviations; its rise is from that mean. What is at most 10 steps apart is one spike. Explained: an RMS spike began 1 to 8 "
    "steps before. By chance: share of the steps that lie 1 to 8 after an RMS spike{accident}. Loss at the end: mean of the last 100 "
    "steps, of fewer than 1000 the last tenth. Over repeats held-out loss and loss at the end are geometric means, as in the table of "
    "the comparison.{provoked}"
)
ACCIDENT = "; after it, of a cell with one trial, the chance that so many loss spikes elsewhere would seem explained"
END = 100  # steps, at most, whose mean is the loss at the end
_HELD_OUT = metric_of("eval_loss_after")
_BETWEEN = "; "  # the two figures by chance
_ROOM = 8  # cells whose counts one sentence has


def section(source: ReportSource) -> Section | None:
    """The text tells of the chance of an accident, and of provocations, where some cell shows them."""
    table = spike_table(source.cells)
    accident = ACCIDENT if any(_BETWEEN in row[table.header.index("by chance")] for row in table.rows) else ""
    told = f" {provoked_spikes.ABOUT.format(*Rule().lead)}" if provoked_spikes.COLUMN in table.header else ""
    return table_section("loss_spikes", "Spikes", table, ABOUT.format(accident=accident, provoked=told))


def spikes_of(row: TrialRow) -> LossSpikes | None:
    """The spikes of a trial that looks for them and has steps; None for others."""
    after = row.trial.parameters.get("spikes_after")
    if after is None or not row.steps.size:
        return None
    return find_spikes(row.steps, row.losses, row.rms, Rule(after=int(after)))


def spike_table(cells: Sequence[Cell]) -> TextTable:
    """A row for each cell, with the first tensor watched, and one for each other tensor; counts are summed over the cell's repeats."""
    judgements = {id(cell): _judgements(cell) for cell in cells}
    selection = [cell for cell in cells if judgements[id(cell)]]
    if not selection:
        return TextTable([], [])
    first = next((name for cell in selection for _, result in judgements[id(cell)] for name in result.tensors), "")
    header = ["cell", "loss spikes", "largest rise", f"RMS spikes of {first}" if first else "RMS spikes", "largest RMS", "explained"]
    provoked = {id(cell): provoked_spikes.followed(judgements[id(cell)]) for cell in selection}
    column = [provoked_spikes.COLUMN] if any(count for _, count in provoked.values()) else []
    header += ["by chance", *column, "held-out loss", "loss at the end", "steps judged", "outcome"]
    rows = []
    for cell in selection:
        results = judgements[id(cell)]
        after = results[0][1].rule.after
        rises = [rise(row.steps, row.losses, event, result.rule) for row, result in results for event in result.loss]
        spikes = [_found(results), number(max(rises, default=None), 3)]
        hits, count = provoked[id(cell)]
        rest = [
            *([f"{hits} of {count}" if count and _judged(results) else "–"] if column else []),
            quantity(cell.middle(_HELD_OUT.name), _HELD_OUT),
            number(mean_on(Scale.LOG, [float(np.mean(row.losses[-min(END, max(1, row.losses.size // 10)) :])) for row, _ in results]), 3),
            str(sum(int((row.steps > after).sum()) for row, _ in results)),
            OUTCOMES.get(cell.outcome, cell.outcome) + ("" if len(results) == 1 else f", {plural(len(results), 'repeat')}"),
        ]
        tensors = list(results[0][1].tensors)
        rows.append([cell.short, *spikes, *(_of_tensor(results, tensors[0]) if tensors else ["–"] * 4), *rest])
        rows += [[f"↳ {tensor}", "", "", *_of_tensor(results, tensor), *[""] * len(rest)] for tensor in tensors[1:]]
    return TextTable(header, rows, numeric=True)


def spikes_sentence(cells: Sequence[Cell]) -> str:
    """`Loss spikes: 9 in 3 trials of adamw (3 each), 18 in 4 trials of stable_adamw (2 to 6 each).` Of many cells that with the most,
    in how many there are any, and of how many it is not known. Empty where none looks for spikes."""
    counts = [(cell, found) for cell in cells if (found := _judgements(cell))]
    if not counts:
        return ""
    names = names_among([cell for cell, _ in counts])[1] if len(counts) > 1 else [counts[0][0].short]
    told = [_counted(name, found) for name, (_, found) in zip(names, counts, strict=True)]
    if len(told) <= _ROOM:
        return f"Loss spikes: {', '.join(told)}."
    totals = {text: sum(len(one.loss) for _, one in found) for text, (_, found) in zip(told, counts, strict=True) if _judged(found)}
    most = max(totals, key=totals.__getitem__, default="")
    parts = [f"Loss spikes in {sum(map(bool, totals.values()))} of {len(totals)} cells"] if totals else ["Loss spikes"]
    parts += [f"the most {most}"] if totals.get(most) else []
    unknown = len(told) - len(totals)
    return f"{', '.join(parts)}{'; ' if totals else ': '}unknown in {plural(unknown, 'cell')}." if unknown else f"{', '.join(parts)}."


def _judgements(cell: Cell) -> list[tuple[TrialRow, LossSpikes]]:
    """The cell's trials that look for spikes and have steps, with what they have."""
    return [(row, result) for row in cell.rows if (result := spikes_of(row)) is not None]


def _judged(found: Sequence[tuple[TrialRow, LossSpikes]]) -> bool:
    """Whether all trials have enough losses for the number of their spikes to be known."""
    return all(one.judged for _, one in found)


def _counted(name: str, found: Sequence[tuple[TrialRow, LossSpikes]]) -> str:
    """`11 in 3 trials of adamw (3 to 5 each, after 9 of 9 provocations)`; that it is not known where a trial has too few losses."""
    where = f"in {plural(len(found), 'trial')} of {name}"
    if not _judged(found):
        return f"unknown {where}"
    each = sorted(len(one.loss) for _, one in found)
    span = f"{each[0]} to {each[-1]}" if each[0] < each[-1] else str(each[0])
    hits, count = provoked_spikes.followed(found)
    more = [f"{span} each"] if len(each) > 1 else []
    more += [f"after {hits} of {plural(count, 'provocation')}"] if count else []
    told = f" ({', '.join(more)})" if more else ""
    return f"{sum(each)} {where}{told}"


def _found(results: Sequence[tuple[TrialRow, LossSpikes]]) -> str:
    """How many loss spikes the repeats have; a dash where too few losses are known."""
    return str(sum(len(result.loss) for _, result in results)) if _judged(results) else "–"


def _of_tensor(results: Sequence[tuple[TrialRow, LossSpikes]], tensor: str) -> list[str]:
    spikes = _found(results)
    hits = sum(len(result.explained(tensor)) for _, result in results)
    after = results[0][1].rule.after
    seen = [row.rms[tensor][(row.steps > after) & np.isfinite(row.rms[tensor])] for row, _ in results]
    chance = _mean(result.chance[tensor] for _, result in results)
    # the chance of an accident is one trial's: repeats of a cell draw the same data
    accidents = [value for _, result in results if (value := result.accident(tensor)) is not None]
    return [
        str(sum(len(result.tensors[tensor]) for _, result in results)),
        number(max((float(values.max()) for values in seen if values.size), default=None), 3),
        f"{hits} of {spikes}" if spikes not in ("0", "–") else "–",
        percent(chance) + (f"{_BETWEEN}{number(accidents[0], 2)}" if len(accidents) == 1 and hits else ""),
    ]


def _mean(values: Iterator[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None
