"""Spikes in a report: a table of what was found in each cell, and the loss curve above the RMS_t curve with the spikes drawn on both."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.spikes import Judged, Rule, judge, rise
from experiments.trial import label
from tasks.cells import Cell
from tasks.results import TrialRow
from tasks.table import TextTable
from tasks.words import OUTCOMES, number, percent, plural

ABOUT = (
    "RMS spike: RMS_t of the tensor is at least 2.3. Loss spike: at least two losses above the mean of the 100 before by 3.2 of their "
    "standard deviations; its rise is from that mean. What is at most 10 steps apart is one spike. Explained: an RMS spike began 1 to 8 "
    "steps before. By chance: share of the steps that lie 1 to 8 after an RMS spike, and the chance that so many loss spikes elsewhere "
    "would seem explained. Loss at the end: mean of the last 100 steps, of fewer than 1000 the last tenth."
)
COLUMNS = 3
MOST = 24  # cells in the figure
POINTS = 300  # of a curve in the figure: beyond that the smallest and the largest of each part
LOSS, RMS, MARK, CAUSE = "#3b82c4", "#7d5fb2", "#d1584a", "#c99700"
END = 100  # steps, at most, whose mean is the loss at the end


def judged(row: TrialRow) -> Judged | None:
    """The spikes of a trial that looks for them and has steps; None for others."""
    after = row.trial.parameters.get("spikes_after")
    if after is None or not row.steps.size:
        return None
    return judge(row.steps, row.losses, row.rms, Rule(after=int(after)))


def spike_table(cells: Sequence[Cell]) -> TextTable:
    """A row for each cell, with the first tensor watched, and one for each other tensor; counts are summed over the cell's repeats."""
    judgements = {id(cell): [(row, result) for row in cell.rows if (result := judged(row)) is not None] for cell in cells}
    shown = [cell for cell in cells if judgements[id(cell)]]
    if not shown:
        return TextTable([], [])
    varying = _varying(shown)
    first = next((name for cell in shown for _, result in judgements[id(cell)] for name in result.tensors), "")
    header = ["cell", "loss spikes", "largest rise", f"RMS spikes of {first}" if first else "RMS spikes", "largest RMS", "explained"]
    header += ["by chance", "held-out loss", "loss at the end", "steps judged", "outcome"]
    rows = []
    for cell in shown:
        found = judgements[id(cell)]
        after = found[0][1].rule.after
        rises = [rise(row.steps, row.losses, event, result.rule) for row, result in found for event in result.loss]
        spikes = [str(sum(len(result.loss) for _, result in found)), number(max(rises, default=None), 3)]
        rest = [
            number(cell.mean("eval_loss_after"), 3),
            number(_mean(float(np.mean(row.losses[-min(END, max(1, row.losses.size // 10)) :])) for row, _ in found), 3),
            str(sum(int((row.steps > after).sum()) for row, _ in found)),
            OUTCOMES.get(cell.outcome, cell.outcome) + ("" if len(found) == 1 else f", {plural(len(found), 'repeat')}"),
        ]
        tensors = list(found[0][1].tensors)
        rows.append([_name(cell, varying), *spikes, *(_of_tensor(found, tensors[0]) if tensors else ["–"] * 4), *rest])
        rows += [[f"↳ {tensor}", "", "", *_of_tensor(found, tensor), *[""] * len(rest)] for tensor in tensors[1:]]
    return TextTable(header, rows, numeric=True)


def _varying(cells: Sequence[Cell]) -> list[str]:
    """The axes in which the cells differ."""
    return [axis for axis in cells[0].axes if len({repr(cell.axes.get(axis)) for cell in cells}) > 1]


def _name(cell: Cell, axes: Sequence[str]) -> str:
    return " · ".join(label(axis, cell.axes[axis]) for axis in axes) or cell.name


def _of_tensor(found: Sequence[tuple[TrialRow, Judged]], tensor: str) -> list[str]:
    spikes = sum(len(result.loss) for _, result in found)
    hits = sum(len(result.explained(tensor)) for _, result in found)
    after = found[0][1].rule.after
    seen = [row.rms[tensor][(row.steps > after) & np.isfinite(row.rms[tensor])] for row, _ in found]
    chance = _mean(result.chance[tensor] for _, result in found)
    # the chance of an accident is one trial's: repeats of a cell draw the same data
    accidents = [value for _, result in found if (value := result.accident(tensor)) is not None]
    return [
        str(sum(len(result.tensors[tensor]) for _, result in found)),
        number(max((float(values.max()) for values in seen if values.size), default=None), 3),
        f"{hits} of {spikes}" if spikes else "–",
        percent(chance) + (f"; {number(accidents[0], 2)}" if len(accidents) == 1 and hits else ""),
    ]


def _mean(values: Iterator[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None


def spike_figure(cells: Sequence[Cell]) -> Figure | None:
    """For each cell, of its first repeat: the loss, and beneath it RMS_t of the first tensor watched. Same scales throughout."""
    found = [(cell, row, result) for cell in cells for row in cell.rows[:1] if (result := judged(row)) is not None and result.tensors]
    found = found[:MOST]
    if not found:
        return None
    varying = _varying([cell for cell, _, _ in found])
    columns = min(COLUMNS, len(found))
    lines = -(-len(found) // columns)
    figure = Figure(figsize=(3.6 * columns + 0.5, 3.1 * lines + 0.4), layout="constrained")
    grid = figure.subplots(2 * lines, columns, sharex=True, squeeze=False, height_ratios=[2, 1] * lines)
    losses = np.concatenate([row.losses[np.isfinite(row.losses)] for _, row, _ in found])
    values = np.concatenate([row.rms[next(iter(result.tensors))] for _, row, result in found])
    top, high = float(losses.max()), max(3.0, float(np.nanmax(values)) if np.isfinite(values).any() else 0.0)
    for at, (cell, row, result) in enumerate(found):
        above, beneath = grid[2 * (at // columns)][at % columns], grid[2 * (at // columns) + 1][at % columns]
        _draw(above, beneath, row, result)
        outcome = "" if cell.outcome == "ok" else f": {OUTCOMES.get(cell.outcome, cell.outcome)}"
        above.set_title(textwrap.fill(_name(cell, varying) + outcome, 52), fontsize=8)
        above.set_ylim(min(0.0, float(losses.min())), top * 1.05)
        beneath.set_ylim(0, high * 1.08)
        if at % columns == 0:
            above.set_ylabel("loss")
            beneath.set_ylabel("RMS")
        beneath.set_xlabel("step")
        beneath.tick_params(labelbottom=True)
    for at in range(len(found), lines * columns):
        grid[2 * (at // columns)][at % columns].set_axis_off()
        grid[2 * (at // columns) + 1][at % columns].set_axis_off()
    handles = {label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=4, fontsize=8.5)
    return figure


def _draw(above: Any, beneath: Any, row: TrialRow, result: Judged) -> None:
    tensor = next(iter(result.tensors))
    causes = result.explained(tensor)
    above.plot(*_thinned(row.steps, row.losses), color=LOSS, linewidth=0.7)
    beneath.plot(*_thinned(row.steps, row.rms[tensor]), color=RMS, linewidth=0.7)
    beneath.axhline(result.rule.rms, color=RMS, linewidth=0.7, linestyle="--")
    for event in result.loss:
        why = event in causes
        height = float(np.nanmax(row.losses[(row.steps >= event.first) & (row.steps <= event.last)]))
        name = "loss spike, explained by an RMS spike" if why else "loss spike, not explained"
        above.plot([event.first], [height], "v" if why else "x", color=MARK, markersize=5, label=name)
        beneath.axvline(event.first, color=MARK, linewidth=0.6, alpha=0.5)
    for spike in result.tensors[tensor]:
        inside = (row.steps >= spike.first) & (row.steps <= spike.last)
        beneath.plot([spike.first], [float(np.nanmax(row.rms[tensor][inside]))], "o", color=CAUSE, markersize=3, label="RMS spike")
    for axes in (above, beneath):
        axes.axvspan(0, result.rule.after, color="#9aa3af", alpha=0.15, linewidth=0, label="not judged")


def _thinned(steps: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The curve with at most POINTS points, in which every peak is still there: of each part its smallest and its largest."""
    finite = np.isfinite(values)
    steps, values = steps[finite], values[finite]
    if steps.size <= POINTS:
        return steps, values
    kept = []
    for part in np.array_split(np.arange(steps.size), POINTS // 2):
        kept += sorted({int(part[np.argmin(values[part])]), int(part[np.argmax(values[part])])})
    return steps[kept], values[kept]
