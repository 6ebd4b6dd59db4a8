"""Names beside the points of a figure, none over another."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from tasks.report.figures.style import INK, lay_out

_LINE = 64  # letters of a name for which half of the figure's width has room
_STEPS = (5, -12, 16, -23, 27, -34)  # points above a point's middle, in the order in which they are tried


def name_points(figure: Figure, axes: Any, names: Sequence[tuple[tuple[float, float], str]], *, middle: float) -> None:
    """Write each name beside its point, in lines that end within the axes: at the right of points left of `middle`, else at their left.

    A name goes above its point, or as far below or above as it takes to lie over no other name; of six places the last one stays. Call it
    when the axes have their limits.
    """
    lay_out(figure)  # a name's place follows from that of the axes
    placed: list[Any] = []
    for point, name in names:
        at_left = point[0] > middle
        text = "\n".join(textwrap.wrap(name, _LINE, break_long_words=False))
        where: dict[str, Any] = {"xytext": (-7 if at_left else 7, 0), "ha": "right" if at_left else "left"}
        label = axes.annotate(text, point, **where, textcoords="offset points", fontsize=8, color=INK)
        label.set_in_layout(False)
        for above in _STEPS:
            label.set_position((where["xytext"][0], above))
            box = label.get_window_extent()
            if not any(box.overlaps(other) for other in placed):
                break
        placed.append(box)
