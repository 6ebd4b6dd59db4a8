"""Figure: the loss curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tasks.analysis.cell import Cell
from tasks.report.figures.coincident import LINE_WIDTH, CellCurve, coincident, name_curves, named_together
from tasks.report.figures.style import CURVES

POINTS = 2000  # of all curves together, at least LEAST of each: smoothed curves need no more
LEAST = 40


def loss_figure(cells: Sequence[Cell]) -> Figure | None:
    """Loss by step, smoothed, of each cell's first repeat that trained; dashed where loss parity struck it.

    Cells whose curves lie on one another are one entry of the legend, which names all of them.
    """
    trained = [cell for cell in cells if cell.measured and cell.trains]
    shown = [cell for cell in trained if np.isfinite(cell.measured[0].losses).sum() >= 2]
    if not shown:
        return None
    groups = coincident([_curve(cell, max(LEAST, POINTS // len(shown))) for cell in shown])
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    axes = figure.add_subplot()
    by_cell = len(groups) <= len(CURVES)
    if by_cell:
        _draw_groups(axes, groups)
    else:
        _draw_by_precision(axes, [curve for group in groups for curve in group])
    axes.set_xlabel("step, warm-up included")
    smoothed = any(_half_width(cell.measured[0].losses) for cell in shown)
    axes.set_ylabel(f"training loss{' (smoothed)' if smoothed else ''}")
    together = by_cell and len(groups) < len(shown)
    if together or len(axes.get_legend_handles_labels()[1]) > 1:
        name_curves(figure, axes, together=together)
    return figure


def _curve(cell: Cell, most: int) -> CellCurve:
    """At most `most` points of the curve, evenly over its steps."""
    row = cell.measured[0]
    at = np.unique(np.linspace(0, row.steps.size - 1, most).astype(int))
    return CellCurve(cell, np.array([row.steps[at], _smooth(row.losses)[at]], float), "--" if cell.struck else "-")


def _draw_groups(axes: Any, groups: Sequence[Sequence[CellCurve]]) -> None:
    """A line for each group. Of those that share their first steps the shorter lies on top, so that both are seen."""
    longest = max(group[0].points.shape[1] for group in groups)
    for group, colour in zip(groups, CURVES, strict=False):
        first = group[0]
        above = 2 + (1 - first.points.shape[1] / longest) / 2
        name = named_together([curve.cell for curve in group])
        axes.plot(*first.points, first.style, color=colour, linewidth=LINE_WIDTH, label=name, zorder=above)


def _draw_by_precision(axes: Any, curves: Sequence[CellCurve]) -> None:
    """More curves than colours: by precision, each precision's as one line with gaps, since a thousand lines take seconds."""
    drawn: dict[tuple[str, str], list[CellCurve]] = {}
    for curve in curves:
        drawn.setdefault((str(curve.cell.trial.parameters.get("precision", "")), curve.style), []).append(curve)
    names = list(dict.fromkeys(name for name, _ in drawn))
    colours = dict(zip(names, CURVES * (1 + len(names) // len(CURVES)), strict=False))
    labelled: set[str] = set()
    for (name, style), several in drawn.items():
        gap = np.full((2, 1), np.nan)
        steps, losses = np.hstack([part for curve in several for part in (curve.points, gap)])[:, :-1]
        label = None if name in labelled else name
        axes.plot(steps, losses, style, color=colours[name], linewidth=LINE_WIDTH, alpha=0.6, label=label)
        labelled.add(name)


def _half_width(losses: np.ndarray[Any, Any]) -> int:
    """How many steps on either side a smoothed loss is the mean of; 0 of a short curve, which is shown as it is."""
    return losses.size // 40


def _smooth(losses: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Mean over n / 20 steps around each, fewer at the ends; as it is where a loss is not finite."""
    if not np.isfinite(losses).all():
        return losses
    half = _half_width(losses)
    sums = np.cumsum(np.insert(losses, 0, 0.0))
    at = np.arange(losses.size)
    starts, ends = np.maximum(0, at - half), np.minimum(losses.size, at + half + 1)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))
