"""Curves that a figure cannot show apart, as entries of its legend: of curves that lie on one another a reader sees only the last."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tasks.analysis.cell import Cell

LINE_WIDTH = 1.6  # points
_TOGETHER = "named together: cells whose curves lie within the width of one line"
_HEIGHT = 240.0  # of the axes, points: about what a figure of 4.2 inches leaves them
_LETTERS = 52  # in a line of a legend of two columns
_LINE = 0.14  # height of a line of a legend, inches


@dataclass(frozen=True)
class CellCurve:
    """A cell's curve: (2, points), x and y. `style`: matplotlib's of the line."""

    cell: Cell
    points: NDArray[np.float64]
    style: str


def coincident(curves: Sequence[CellCurve]) -> list[list[CellCurve]]:
    """Groups, in order of their first curve, of those with the same x and style that differ nowhere by more than half a line's width.

    By the range of all finite values, which is the axis of the figure.
    """
    values = np.concatenate([curve.points[1] for curve in curves]) if curves else np.empty(0)
    finite = values[np.isfinite(values)]
    reach = float(np.ptp(finite)) * LINE_WIDTH / 2 / _HEIGHT if finite.size else 0.0
    groups: list[list[CellCurve]] = []
    for curve in curves:
        group = next((group for group in groups if _lies_on(curve, group[0], reach)), None)
        if group is None:
            groups.append([curve])
        else:
            group.append(curve)
    return groups


def _lies_on(curve: CellCurve, other: CellCurve, reach: float) -> bool:
    if curve.style != other.style or curve.points.shape != other.points.shape or not np.array_equal(curve.points[0], other.points[0]):
        return False
    return np.allclose(curve.points[1], other.points[1], rtol=0, atol=reach, equal_nan=True)


def named_together(cells: Sequence[Cell]) -> str:
    """`tiny · fp32: MP-0, MP-1, MP-2`: what these cells share, then what tells them apart; in lines that a legend has room for.

    Their whole names where a cell has nothing beyond what all share, as one without an axis that others have.
    """
    if len(cells) == 1:
        return _in_lines(cells[0].short)
    names = [cell.told for cell in cells]
    shared = [axis for axis, text in names[0].items() if all(name.get(axis) == text for name in names)]
    apart = [" · ".join(text for axis, text in name.items() if axis not in shared) for name in names]
    if not all(apart):
        return _in_lines(", ".join(cell.short for cell in cells))
    common = " · ".join(names[0][axis] for axis in shared)
    return _in_lines(f"{common}: {', '.join(apart)}" if common else ", ".join(apart))


def name_curves(figure: Figure, axes: Any, *, together: bool) -> None:
    """A legend of the labelled curves in two columns, for which the figure gets higher. `together`: say what several names in one mean."""
    handles, labels = axes.get_legend_handles_labels()
    beside = min(2, len(labels))
    title = _TOGETHER if together else None
    figure.legend(handles, labels, loc="outside upper center", ncols=beside, fontsize=8, title=title, title_fontsize=8)
    lines = sum(text.count("\n") + 1 for text in labels) / beside + together
    figure.set_figheight(figure.get_figheight() + _LINE * max(0.0, lines - 2))


def _in_lines(name: str) -> str:
    return "\n".join(textwrap.wrap(name, _LETTERS, break_long_words=False, break_on_hyphens=False))
