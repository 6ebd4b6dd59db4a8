"""Figure: where the device's peak goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from tasks.analysis.cell import Cell
from tasks.analysis.waterfall import DROPS
from tasks.report.figures.style import CURVES, GREY, INK, MOST, RED, bars, end_bars, name_bars
from tasks.report.sections.waterfall import waterfalls

_BLUE, _ORANGE, _GREEN, _PINK, _YELLOW, _SKY, _PURPLE, _BROWN = CURVES
REACHED = "reached"
_SEEN = 0.5  # % of the peak: as much as can be seen beyond the line
_OF_DROPS = (_ORANGE, _PURPLE, _BROWN, INK, RED, _SKY, _PINK, _BLUE, _YELLOW, GREY)
COLOURS = {REACHED: _GREEN, **dict(zip(reversed(DROPS), _OF_DROPS, strict=True))}


def waterfall_figure(cells: Sequence[Cell]) -> Figure | None:
    """A bar for each cell: from what was reached through what each cause costs up to the data sheet's peak.

    A gain, such as a clock above the data sheet's, makes a bar by as much longer than the peak, which is a line.
    """
    found = waterfalls(cells)[0][:MOST]
    if not found:
        return None
    figure, axes = bars(len(found), legend=True)
    left = np.zeros(len(found))
    for name, colour in COLOURS.items():
        shares = [one.reached if name == REACHED else one.drops[name] for _, one in found]
        widths = np.array([max(0.0, share or 0.0) * 100 for share in shares])
        if widths.any():
            axes.barh(range(len(found)), widths, left=left, height=0.62, color=colour, label=name)
            left += widths
    axes.axvline(100, color=INK, linewidth=1, linestyle="--")
    end_bars(axes)
    name_bars(figure, axes, [cell.short for cell, _ in found])
    beyond = "; a bar ends beyond it by what was gained" if (left > 100 + _SEEN).any() else ""
    axes.set_xlabel(f"% of the data sheet's peak{beyond}")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(5, len(labels)), fontsize=9)
    figure.set_figheight(figure.get_figheight() + (0.25 if len(labels) > 5 else 0.0))
    return figure
