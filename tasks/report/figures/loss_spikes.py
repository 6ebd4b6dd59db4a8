"""The loss curve above the RMS_t curve, with the spikes drawn on both."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.stats.loss_spikes import LossSpikes
from tasks.analysis.cell import Cell
from tasks.analysis.trial_row import TrialRow
from tasks.report.figures.style import GREY, RED
from tasks.report.sections.loss_spikes import spikes_of
from tasks.report.text_format import OUTCOMES

LOSS, RMS, MARK, CAUSE = "#3b82c4", "#7d5fb2", RED, "#c99700"
COLUMNS = 3
MOST = 24  # cells in the figure
POINTS = 300  # of a curve in the figure: beyond that the smallest and the largest of each part


def spike_figure(cells: Sequence[Cell]) -> Figure | None:
    """For each cell, of its first repeat: the loss, and beneath it RMS_t of the first tensor watched. Same scales throughout."""
    panels = [(cell, row, result) for cell in cells for row in cell.rows[:1] if (result := spikes_of(row)) is not None and result.tensors]
    panels = panels[:MOST]
    if not panels:
        return None
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(3.6 * columns + 0.5, 3.1 * lines + 0.4), layout="constrained")
    grid = figure.subplots(2 * lines, columns, sharex=True, squeeze=False, height_ratios=[2, 1] * lines)
    losses = np.concatenate([row.losses[np.isfinite(row.losses)] for _, row, _ in panels])
    values = np.concatenate([row.rms[next(iter(result.tensors))] for _, row, result in panels])
    top, high = float(losses.max()), max(3.0, float(np.nanmax(values)) if np.isfinite(values).any() else 0.0)
    for at, (cell, row, result) in enumerate(panels):
        above, beneath = grid[2 * (at // columns)][at % columns], grid[2 * (at // columns) + 1][at % columns]
        _draw(above, beneath, row, result)
        outcome = "" if cell.outcome == "ok" else f": {OUTCOMES.get(cell.outcome, cell.outcome)}"
        above.set_title(textwrap.fill(cell.short + outcome, 52), fontsize=8)
        above.set_ylim(min(0.0, float(losses.min())), top * 1.05)
        beneath.set_ylim(0, high * 1.08)
        if at % columns == 0:
            above.set_ylabel("loss")
            beneath.set_ylabel("RMS")
        beneath.set_xlabel("step")
        beneath.tick_params(labelbottom=True)
    for at in range(len(panels), lines * columns):
        grid[2 * (at // columns)][at % columns].set_axis_off()
        grid[2 * (at // columns) + 1][at % columns].set_axis_off()
    handles = {label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=4, fontsize=8.5)
    return figure


def _draw(above: Any, beneath: Any, row: TrialRow, result: LossSpikes) -> None:
    tensor = next(iter(result.tensors))
    causes = result.explained(tensor)
    above.plot(*_thinned(row.steps, row.losses), color=LOSS, linewidth=0.7)
    beneath.plot(*_thinned(row.steps, row.rms[tensor]), color=RMS, linewidth=0.7)
    beneath.axhline(result.rule.rms, color=RMS, linewidth=0.7, linestyle="--")
    for event in result.loss:
        why = event in causes
        finite = np.isfinite(row.losses)
        inside = (row.steps >= event.first) & (row.steps <= event.last) & finite
        shown = row.losses[inside if inside.any() else finite]  # a spike of infinite losses alone: at the height of the highest loss
        height = float(shown.max()) if shown.size else 0.0
        name = "loss spike, explained by an RMS spike" if why else "loss spike, not explained"
        above.plot([event.first], [height], "v" if why else "x", color=MARK, markersize=5, label=name)
        beneath.axvline(event.first, color=MARK, linewidth=0.6, alpha=0.5)
    for spike in result.tensors[tensor]:
        inside = (row.steps >= spike.first) & (row.steps <= spike.last)
        beneath.plot([spike.first], [float(np.nanmax(row.rms[tensor][inside]))], "o", color=CAUSE, markersize=3, label="RMS spike")
    for axes in (above, beneath):
        axes.axvspan(0, result.rule.after, color=GREY, alpha=0.15, linewidth=0, label="not judged")


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
