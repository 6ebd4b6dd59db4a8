"""A cell's last nights in a line of a table: small enough that a page holds hundreds."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from tasks.site.series import VERDICTS, Points

NIGHTS = 30
_WIDTH, _HEIGHT = 120, 24  # of the view; the page sets the size
_EDGE = 4  # between curve and edge: room for half of the last night's dot
_LEAST = 2.0  # the axis spans at least so many smallest changes that matter either side of the middle: what is the same looks flat


def sparkline(points: Points) -> Markup:
    """The last 30 nights' values as a curve, with a dot for the last one in the colour of its verdict; nothing without a value."""
    logs = np.log(points.value[-NIGHTS:])
    if not logs.size:
        return Markup()
    middle = float(np.median(logs))
    reach = max(float(np.abs(logs - middle).max()), _LEAST * float(np.log1p(points.minimum[-1])))
    y = np.rint(_HEIGHT / 2 - (logs - middle) / reach * (_HEIGHT / 2 - _EDGE)).astype(int)
    x = np.rint(_EDGE + np.arange(NIGHTS - logs.size, NIGHTS) * (_WIDTH - 2 * _EDGE) / (NIGHTS - 1)).astype(int)
    steps = "".join(f"l{dx} {dy}" if dy >= 0 else f"l{dx}{dy}" for dx, dy in zip(np.diff(x), np.diff(y), strict=True))
    path = f'<path d="M{x[0]} {y[0]}{steps}"/>'
    dot = f'<path class="{VERDICTS[int(points.verdict[-1])]}" d="M{x[-1]} {y[-1]}h0"/>'
    return Markup(f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true">{path}{dot}</svg>')  # noqa: S704 - numbers of ours
