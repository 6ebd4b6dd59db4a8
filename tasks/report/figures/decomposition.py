"""Figure: where a step's time goes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np
from matplotlib.figure import Figure

from tasks.analysis.cell import Cell
from tasks.report.figures.style import GREY, MOST, bars, end_bars, name_bars
from tasks.report.sections.step_decomposition import PART_SHARES, other_share, part_names

_OF_PARTS = ("#d55e00", "#cc79a7", "#3b82c4", "#2a9d78")
COLOURS = (*islice(cycle(_OF_PARTS), len(PART_SHARES)), GREY)  # of a step's parts in their order, then of the rest


def decomposition_figure(cells: Sequence[Cell]) -> Figure | None:
    """Mean step time, split into its parts."""
    selection = [cell for cell in cells if cell.measured and all(cell.mean(name) is not None for name in PART_SHARES)][:MOST]
    if not selection:
        return None
    figure, axes = bars(len(selection), legend=True)
    left = np.zeros(len(selection))
    shares = np.array([_shares(cell) for cell in selection])
    steps = np.array([_mean_step_ms(cell) for cell in selection])
    trains = any(cell.trains for cell in selection)
    for name, colour, share in zip(part_names(selection), COLOURS, shares.T, strict=True):
        if not trains and not share.any():
            continue  # what does not train has no optimiser
        part = share * steps
        axes.barh(range(len(selection)), part, left=left, height=0.62, color=colour, label=name)
        left += part
    name_bars(figure, axes, [cell.short for cell in selection])
    end_bars(axes)
    axes.set_xlabel("mean step time (ms)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=len(axes.containers), fontsize=9)
    return figure


def _shares(cell: Cell) -> list[float]:
    """Of a step's parts, then of the rest."""
    known = [cell.mean(name) or 0.0 for name in PART_SHARES]
    return [*known, other_share(known) or 0.0]


def _mean_step_ms(cell: Cell) -> float:
    steps, samples, rate = (cell.mean(name) for name in ("measured_steps", "samples", "throughput"))
    return samples / steps / rate * 1000 if steps and samples and rate else 0.0
