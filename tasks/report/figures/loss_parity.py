"""Figure: how far each judged loss curve is from its reference's, with the margin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.stats.loss_parity import MARGIN
from tasks.analysis.cell import Cell
from tasks.report.figures.style import CURVES, GREY
from tasks.report.sections.loss_parity import judged


def parity_figure(cells: Sequence[Cell]) -> Figure | None:
    """The relative difference of the loss in %, by step, of each curve that was judged; dashed if struck. The margin is shaded."""
    curves = [(cell.short, cell.parity) for cell in judged(cells) if cell.parity is not None and cell.parity.ends.size]
    if not curves:
        return None
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    axes: Any = figure.add_subplot()
    last = max(int(parity.ends[-1]) for _, parity in curves)
    axes.fill_between([0, last], -100 * MARGIN, 100 * MARGIN, color=GREY, alpha=0.25, linewidth=0, label="margin")
    for place, (name, parity) in enumerate(curves):
        middle = (np.concatenate([[0], parity.ends[:-1]]) + parity.ends) / 2
        style = "--" if parity.left_at is not None else "-"
        axes.plot(middle, 100 * parity.curve, style, color=CURVES[place % len(CURVES)], linewidth=1.6, label=name)
    axes.set_xlabel("step, warm-up included; the second half is judged")
    axes.set_ylabel("difference of the loss, %")
    if len(curves) <= len(CURVES):
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8)
    return figure
