"""Figure: how far each judged loss curve is from its reference's, with the margin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.stats.loss_parity import MARGIN, Parity
from tasks.analysis.cell import Cell
from tasks.report.figures.coincident import LINE_WIDTH, CellCurve, coincident, name_curves, named_together
from tasks.report.figures.style import CURVES, GREY
from tasks.report.sections.loss_parity import judged


def parity_figure(cells: Sequence[Cell]) -> Figure | None:
    """The relative difference of the loss in %, by step, of each curve that was judged; dashed if struck. The margin is shaded.

    Cells whose curves lie on one another are one entry of the legend, which names all of them.
    """
    curves = [_curve(cell, cell.parity) for cell in judged(cells) if cell.parity is not None and cell.parity.ends.size]
    if not curves:
        return None
    groups = coincident(curves)
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    axes: Any = figure.add_subplot()
    last = max(int(curve.cell.parity.ends[-1]) for curve in curves if curve.cell.parity is not None)
    axes.fill_between([0, last], -100 * MARGIN, 100 * MARGIN, color=GREY, alpha=0.25, linewidth=0, label="margin")
    for place, group in enumerate(groups):
        name = named_together([curve.cell for curve in group])
        axes.plot(*group[0].points, group[0].style, color=CURVES[place % len(CURVES)], linewidth=LINE_WIDTH, label=name)
    axes.set_xlabel("step, warm-up included; the second half is judged")
    axes.set_ylabel("difference of the loss, %")
    if len(groups) <= len(CURVES):
        name_curves(figure, axes, together=len(groups) < len(curves))
    return figure


def _curve(cell: Cell, parity: Parity) -> CellCurve:
    """In the middle of each block of steps."""
    middle = (np.concatenate([[0], parity.ends[:-1]]) + parity.ends) / 2
    return CellCurve(cell, np.array([middle, 100 * parity.curve]), "--" if parity.left_at is not None else "-")
