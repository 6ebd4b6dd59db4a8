"""The figures that a suite asks for under `report.figures`: one metric over the values of one axis, a line of bars for each series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.summary import SPIKES
from experiments.trial import label
from tasks.cells import Cell, Metric, is_number
from tasks.table import text_of
from tasks.words import OUTCOMES, number, seconds

COLOURS = ("#3b82c4", "#d55e00", "#2a9d78", "#cc79a7", "#c99700", "#56b4e9", "#7d5fb2", "#8a6d3b", "#9aa3af", "#14181f")


def axis_figure(cells: Sequence[Cell], wanted: Mapping[str, Any]) -> Figure | None:
    """`wanted`: title, metric, x, series, where, as experiments.suite_schema.ReportFigure. None where no cell has the metric.

    A cell that ended without the metric is an absent bar with its outcome in its place.
    """
    where = wanted.get("where") or {}
    shown = [cell for cell in cells if all(_among(cell.trial.parameters | dict(cell.axes), key, value) for key, value in where.items())]
    shown = [cell for cell in shown if cell.outcome != "to do"]
    values = {id(cell): cell.mean(str(wanted["metric"])) for cell in shown}
    if not any(is_number(value) for value in values.values()):
        return None
    x, metric = str(wanted["x"]), Metric.of(str(wanted["metric"]))
    names = list(dict.fromkeys(text_of(cell.axes.get(x)) for cell in shown))
    varies = [axis for axis in wanted.get("series") or [] if len({repr(cell.axes.get(axis)) for cell in shown}) > 1]
    series: dict[str, dict[str, Cell]] = {}
    for cell in shown:
        who = " · ".join(label(axis, cell.axes.get(axis)) for axis in varies) or metric.name.replace("_", " ")
        series.setdefault(who, {})[text_of(cell.axes.get(x))] = cell
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    axes = figure.add_subplot()
    width = 0.84 / len(series)
    for number_of, (who, members) in enumerate(series.items()):
        at = np.arange(len(names)) - 0.42 + (number_of + 0.5) * width
        heights = [values[id(members[name])] if name in members else None for name in names]
        axes.bar(at, [height or 0.0 for height in heights], width * 0.92, color=COLOURS[number_of % len(COLOURS)], label=who)
        for place, name, height in zip(at, names, heights, strict=True):
            text = _text(height, metric) if height is not None else _absent(members.get(name))
            colour = "#14181f" if height is not None else "#d1584a"
            axes.text(place, height or 0.0, f" {text}", rotation=90, ha="center", va="bottom", fontsize=7.5, color=colour)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel(x.replace("_", " "))
    axes.set_ylabel(metric.name.replace("_", " ") + (f" ({metric.unit})" if metric.unit else ""))
    axes.margins(y=0.25)
    axes.grid(axis="x", visible=False)
    if len(series) > 1:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=min(3, len(series)), fontsize=8.5)
    return figure


def _text(value: float, metric: Metric) -> str:
    if metric.name in SPIKES:  # counts; a mean over repeats may be none
        return f"{value:g}"
    return seconds(value) if metric.unit == "s" else number(value, 3)


def _absent(cell: Cell | None) -> str:
    return "" if cell is None else OUTCOMES.get(cell.outcome, cell.outcome) if cell.outcome != "ok" else "unknown"


def _among(values: Mapping[str, Any], key: str, wanted: Any) -> bool:
    return values.get(key) in (wanted if isinstance(wanted, list) else [wanted])
