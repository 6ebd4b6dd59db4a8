"""Figures: throughput against what a million samples cost, in money or in energy, with the Pareto front marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.metric import Metric
from experiments.metrics import metric_of
from experiments.stats.estimate import Estimate
from tasks.analysis.cell import Cell
from tasks.analysis.costs import KWH, RATE, UNPROVEN, CellCost, cost_metric, costs_of, front
from tasks.report.figures.point_names import name_points
from tasks.report.figures.style import CURVES, GREY, MOST

_NAMED = 15  # points with a name; beyond that those on the front alone
_CUT = 2.0
Amount = Callable[[CellCost], Estimate | None]


def cost_figure(cells: Sequence[Cell]) -> Figure | None:
    """Throughput against cost. None unless two cells that do the same work have both, and all costs are in one currency."""
    found = [one for one in costs_of(cells) if one.cost is not None]
    if len({one.currency for one in found}) != 1:
        return None
    return _figure(found, lambda one: one.cost, cost_metric(found[0].currency))


def energy_figure(cells: Sequence[Cell]) -> Figure | None:
    """Throughput against energy. None unless two cells that do the same work have both."""
    return _figure(costs_of(cells), lambda one: one.energy, KWH)


def _figure(found: Sequence[CellCost], amount: Amount, metric: Metric) -> Figure | None:
    points = [(one, one.rate, of) for one in found if one.rate is not None and (of := amount(one)) is not None][:MOST]
    best = front([one for one, _, _ in points], amount)
    if not best:
        return None
    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    axes = figure.add_subplot()
    right = _end([of for _, _, of in points], 1.25)
    for one, rate, of in points:
        on = one in best
        colour = CURVES[0] if on else GREY
        if np.isfinite(of.se):
            axes.plot((of.low, of.high), (rate.value, rate.value), color=colour, linewidth=1.0, alpha=0.7)
        if np.isfinite(rate.se):
            axes.plot((of.value, of.value), (rate.low, rate.high), color=colour, linewidth=1.0, alpha=0.7)
        axes.plot([of.value], [rate.value], "o" if on else "s", color=colour, markersize=8 if on else 5)  # shapes tell them apart too
    _draw_front([(of.value, rate.value) for one, rate, of in points if one in best], axes, one_group=_one_group(found))
    axes.set_xlim(left=0, right=right)
    axes.set_ylim(bottom=0, top=_end([rate for _, rate, _ in points], 1.15))
    axes.set_xlabel(f"{metric.title}, 95 % interval; less is better")
    axes.set_ylabel(metric_of(RATE).title)
    names = [
        ((of.value, rate.value), f"{one.cell.short}{f' ({UNPROVEN})' if one in best and not one.cell.may_lead(None) else ''}")
        for one, rate, of in points
        if one in best or len(points) <= _NAMED
    ]
    name_points(figure, axes, names, middle=right / 2)
    return figure


def _end(values: Sequence[Estimate], room: float) -> float:
    """Where an axis ends: `room` times the largest value, or beyond the intervals; one that goes on beyond _CUT times it is cut off."""
    largest = max(one.value for one in values)
    highest = max((one.high for one in values if np.isfinite(one.se)), default=largest)
    return max(room * largest, min(1.03 * highest, _CUT * largest))


def _one_group(found: Sequence[CellCost]) -> bool:
    """Whether all cells do the same work, so that there is one front."""
    return all(one.cell.work == found[0].cell.work for one in found)


def _draw_front(best: Sequence[tuple[float, float]], axes: Any, *, one_group: bool) -> None:
    """The front as a staircase through its points, (amount, rate) each; several groups of work have several, and no line."""
    if not one_group or len(best) < 2:
        return
    ordered = sorted(best)
    axes.step([x for x, _ in ordered], [y for _, y in ordered], where="post", color=CURVES[0], linewidth=1.2, linestyle="--")
