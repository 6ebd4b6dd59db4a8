"""Figures of metrics that have a number in their name, such as the magnitude after each block: a line over the number for each cell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.metrics import metric_of
from experiments.spec.schema import ReportFigure
from experiments.trial import label
from tasks.analysis.cell import Cell
from tasks.report.figures.style import COLOURS

DASHES = ("-", "--", ":", "-.")


def numbered_figure(cells: Sequence[Cell], figure_spec: ReportFigure) -> Figure | None:
    """`figure_spec`: its metric with a `*` for the number. None where no cell has such a metric.

    The vertical axis is logarithmic where values differ by more than a factor of 20.
    """
    name = figure_spec.metric
    pattern = re.compile(re.escape(name).replace(r"\*", r"(\d+)") + r"\Z")
    curves: list[tuple[Cell, list[tuple[int, float]]]] = []
    for cell in cells:
        if any(cell.axes.get(key) not in (value if isinstance(value, list) else [value]) for key, value in figure_spec.where.items()):
            continue
        number_by_key = {key: int(match[1]) for row in cell.measured for key in row.summary if (match := pattern.match(key))}
        points = sorted((number, mean) for key, number in number_by_key.items() if (mean := cell.mean(key)) is not None)
        if points:
            curves.append((cell, points))
    if not curves:
        return None
    varies = [axis for axis in figure_spec.series if len({repr(cell.axes.get(axis)) for cell, _ in curves}) > 1]
    figure = Figure(figsize=(8.6, 3.8 + 0.13 * len(curves)), layout="constrained")
    axes = figure.add_subplot()
    for at, (cell, points) in enumerate(curves):
        style, colour = DASHES[at // len(COLOURS) % len(DASHES)], COLOURS[at % len(COLOURS)]
        who = " · ".join(label(axis, cell.axes.get(axis)) for axis in varies) or cell.short
        axes.plot(*zip(*points, strict=True), style, marker="o", markersize=3.5, linewidth=1.5, color=colour, label=who)
    heights = [value for _, points in curves for _, value in points]
    if min(heights) > 0 and max(heights) > 20 * min(heights):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")  # powers of ten would be formulas, which are not parsed
        axes.yaxis.set_minor_formatter("{x:g}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    metric = metric_of(name)
    axes.set_xlabel(figure_spec.x)
    axes.set_ylabel(re.sub(r"_\*|\*", "", name).removeprefix("eval_").replace("_", " ") + (f" ({metric.unit})" if metric.unit else ""))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=min(2, len(curves)), fontsize=8)
    return figure
