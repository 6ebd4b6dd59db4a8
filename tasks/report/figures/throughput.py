"""Figure: the suite's metric of each cell, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from tasks.analysis.cell import Cell
from tasks.report.figures.style import MOST, RED, bars, interval, name_bars, room_for_texts
from tasks.report.text_format import OUTCOMES, axis_unit, quantity, spread


def throughput_figure(cells: Sequence[Cell], *, winners: Sequence[Cell] = ()) -> Figure | None:
    """The metric of each cell with its 95 % interval; a cell without a value is an absent point with its outcome.

    `winners`: the cells that stand out, since they are shown to be the best of those that do the same work.
    """
    selection = [cell for cell in cells if cell.outcome != "to do"][:MOST]
    if not any(cell.estimate for cell in selection):
        return None
    figure, axes = bars(len(selection))
    metric = selection[0].metric
    unit, title = axis_unit(metric)
    top = max(cell.estimate.value for cell in selection if cell.estimate) / unit
    top = top if top > 0 else 1.0  # a score of 0 in every cell
    for y, cell in enumerate(selection):
        if cell.estimate is None:
            axes.text(top * 0.01, y, OUTCOMES.get(cell.outcome, cell.outcome), va="center", fontstyle="italic", color=RED)
            continue
        value, low, high = (number / unit for number in (cell.estimate.value, cell.estimate.low, cell.estimate.high))
        axes.barh(y, value, height=0.62, color="#3b82c4" if cell in winners else "#9db8d6", hatch="///" if cell.struck else None)
        known = bool(np.isfinite(cell.estimate.se))
        if known:
            _, high = interval(axes, y, (max(low, 0), high), (0, top * 1.3), upright=False)
        axes.text(max(high if known else 0, value) + top * 0.018, y, _value_text(cell), va="center", fontsize=9)
    name_bars(figure, axes, [cell.short for cell in selection])
    any_known = any(np.isfinite(cell.estimate.se) for cell in selection if cell.estimate)
    axes.set_xlabel(f"{title}{', 95 % interval' if any_known else ''}")
    room_for_texts(figure, axes, top * 1.32)
    return figure


def _value_text(cell: Cell) -> str:
    assert cell.estimate is not None
    value = quantity(cell.estimate.value, cell.metric).removesuffix(" samples/s")
    text = f"{value} {spread(cell.estimate, cell.metric)}".strip()
    if cell.claimed:
        return text
    return f"{text} · {'loss differs' if cell.struck else 'loss parity unproven'}"
