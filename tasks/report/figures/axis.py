"""The figures that a suite asks for under `report.figures`: one metric over the values of one axis, a line of bars for each series.

Bars of the report's own metric stand at the values of its table and have their intervals; of other metrics they are means over repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.config.scalar_text import table_text
from experiments.literature.reader import OURS, LiteratureValue, literature_for
from experiments.metric import Kind, Metric
from experiments.metrics import metric_of
from experiments.spec.schema import ReportFigure
from experiments.stats.estimate import Estimate
from experiments.trial import label
from tasks.analysis.cell import Cell, is_number
from tasks.report.figures.style import COLOURS, INK, RED, interval
from tasks.report.text_format import OUTCOMES, number, quantity, times
from tasks.report.value_order import ordered_values

MARKS = {64: "s"}  # by the number of devices of a published value; a diamond for the others


def axis_figure(cells: Sequence[Cell], figure_spec: ReportFigure) -> Figure | None:
    """Bars of `figure_spec.metric` over the values of axis `figure_spec.x`, in a colour for each series. None where no cell has the metric.

    A cell that ended without the metric is an absent bar with its outcome in its place. What others published of a cell is a mark on it.
    """
    metric = metric_of(figure_spec.metric)
    selection = [cell for cell in cells if cell.outcome != "to do" and _matches(cell, figure_spec.where)]
    estimates = {id(cell): estimate for cell in selection if (estimate := _estimate(cell, metric, relative=figure_spec.relative))}
    values = {id(cell): _value(cell, estimates.get(id(cell)), metric, relative=figure_spec.relative) for cell in selection}
    if not any(is_number(value) for value in values.values()):
        return None
    ends = 1.3 * max(abs(value) for value in values.values() if value is not None)  # an interval that goes on is cut off there
    names = [table_text(value) for value in ordered_values([cell.axes.get(figure_spec.x) for cell in selection])]
    series = _series(selection, figure_spec)
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    axes = figure.add_subplot()
    width = 0.84 / len(series)
    for number_of, (who, members) in enumerate(series.items()):
        at = np.arange(len(names)) - 0.42 + (number_of + 0.5) * width
        heights = [values[id(members[name])] if name in members else None for name in names]
        axes.bar(at, [height or 0.0 for height in heights], width * 0.92, color=COLOURS[number_of % len(COLOURS)], label=who)
        for place, name, height in zip(at, names, heights, strict=True):
            text = _text(height, metric, relative=figure_spec.relative) if height is not None else _absent(members.get(name))
            colour = INK if height is not None else RED
            above = height or 0.0
            if name in members and (estimate := estimates.get(id(members[name]))) is not None:
                above = max(above, _interval(axes, place, estimate, ends))
            axes.text(place, above, f" {text}", rotation=90, ha="center", va="bottom", fontsize=7.5, color=colour)
            if name in members:
                _mark(axes, place, width, published_values(members[name], metric, relative=figure_spec.relative))
    _label_axes(axes, names, figure_spec, metric)
    _add_legend(figure, axes, columns=len(series))
    return figure


def _estimate(cell: Cell, metric: Metric, *, relative: bool) -> Estimate | None:
    """What the table says of the cell, where the figure is of the table's metric: its value, or its ratio over the baseline."""
    if metric.name != cell.metric.name:
        return None
    found = cell.speedup if relative else cell.estimate
    return None if found is None or (relative and found.linear) else found  # a linear one is a difference


def _value(cell: Cell, estimate: Estimate | None, metric: Metric, *, relative: bool) -> float | None:
    if estimate is not None:
        return estimate.value
    return _over_baseline(cell, metric) if relative else cell.mean(metric.name)


def _interval(axes: Any, place: float, estimate: Estimate, ends: float) -> float:
    """Draw the interval, up to `ends`; returns where it ends. Nothing of an interval that is not known."""
    if not np.isfinite(estimate.se):
        return estimate.value
    _, high = interval(axes, place, (estimate.low, estimate.high), (-ends, ends), upright=True)
    return float(high)


def _matches(cell: Cell, where: Mapping[str, Any]) -> bool:
    """Whether each parameter or axis in `where` has its value, or one of its values."""
    values = cell.trial.parameters | dict(cell.axes)
    return all(values.get(key) in (value if isinstance(value, list) else [value]) for key, value in where.items())


def _series(cells: Sequence[Cell], figure_spec: ReportFigure) -> dict[str, dict[str, Cell]]:
    """Cells by the name of their series, then by their value of the horizontal axis. Only axes that vary name a series."""
    varies = [axis for axis in figure_spec.series if len({repr(cell.axes.get(axis)) for cell in cells}) > 1]
    series: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        who = " · ".join(label(axis, cell.axes.get(axis)) for axis in varies) or "ours"
        series.setdefault(who, {})[table_text(cell.axes.get(figure_spec.x))] = cell
    return series


def _label_axes(axes: Any, names: Sequence[str], figure_spec: ReportFigure, metric: Metric) -> None:
    axes.set_xticks(range(len(names)), names)
    if sum(map(len, names)) > 70:  # characters: more would overlap
        axes.tick_params(axis="x", labelrotation=25)
        for tick in axes.get_xticklabels():
            tick.set(ha="right", rotation_mode="anchor")
    axes.set_xlabel(figure_spec.x.replace("_", " "))
    axes.set_ylabel(f"{metric.label}, relative" if figure_spec.relative else metric.title)
    axes.margins(y=0.25)
    axes.grid(axis="x", visible=False)


def _add_legend(figure: Figure, axes: Any, columns: int) -> None:
    """One entry for each name, ours before published ones; no legend for a single name."""
    named = sorted(zip(*reversed(axes.get_legend_handles_labels()), strict=True), key=lambda pair: pair[0].startswith("published"))
    handles = dict(named)
    if len(handles) > 1:
        many = len(handles) > 6
        columns = min(2 if many else 3, columns)
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns, fontsize=8 if many else 8.5)


def published_values(cell: Cell, metric: Metric, *, relative: bool) -> list[tuple[float, LiteratureValue]]:
    """What others published of this very cell, save for the hardware, in the figure's unit."""
    values = []
    for entry in literature_for(cell.trial.workload, metric=None):
        if not entry.cell or not (entry.is_of(cell.trial.parameters) and entry.may_stand_beside(cell.trial.parameters)):
            continue
        if relative and entry.metric == "speedup" and metric.name == cell.metric.name:
            values.append((entry.value, entry))
        elif not relative and entry.metric in OURS and OURS[entry.metric][0] == metric.name:
            values.append((entry.value * OURS[entry.metric][1], entry))
    return values


def _mark(axes: Any, place: float, width: float, published: Sequence[tuple[float, LiteratureValue]]) -> None:
    for value, entry in published:
        where = f"published, {entry.accelerator}{f' x{entry.devices}' if entry.devices else ''}"
        side = place + 0.32 * width  # beside the bar's own number
        axes.plot([place + 0.1 * width, place + width / 2], [value, value], color=INK, linewidth=1, zorder=4)
        axes.plot(side, value, MARKS.get(entry.devices or 0, "D"), color=INK, markerfacecolor="white", zorder=5, ls="", label=where)


def _over_baseline(cell: Cell, metric: Metric) -> float | None:
    """How many times better the cell is than its baseline; None where one of them has no value."""
    ours, theirs = cell.mean(metric.name), cell.baseline.mean(metric.name) if cell.baseline else None
    if not ours or not theirs:
        return None
    return theirs / ours if metric.lower_is_better else ours / theirs


def _text(value: float, metric: Metric, *, relative: bool) -> str:
    if relative:
        return times(value)
    if metric.kind in (Kind.RATE, Kind.NUMBER):
        return number(value, 3)
    return quantity(value, metric).removesuffix(f" {metric.unit}") if metric.kind is Kind.COUNT else quantity(value, metric)


def _absent(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.outcome != "ok":
        return OUTCOMES.get(cell.outcome, cell.outcome)
    return "other work" if cell.other_work else "unknown"
