"""The history of one metric as SVG: values with their intervals, the band in which nights are the same, accepted changes.

Written here and not by matplotlib, which takes a quarter of a second a figure: a site has thousands. Coordinates are whole numbers in a
view of WIDTH x HEIGHT, two of which are one pixel on a narrow screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tasks.site.series import VERDICTS, Array, Points

WIDTH, HEIGHT = 1240, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 32, 1136, 30, 356  # the plot's edges; right of it the numbers, where a narrow screen shows the newest nights
_LEAST_DAYS = 13  # along the axis: a narrow screen shows half of it, so that all of the first nights are seen
_INSET = 40  # so that marks at either end are whole
_MOST_LABELS = 8  # dates along the axis
_INTERVALS_REACH = 0.6  # of the range of values and bands, by which intervals may widen it on either side
_MARKS = {"slower": "m-9-8h18l-9 16z", "faster": "m-9 8h18l-9-16z"}  # triangles; the others are dots


@dataclass(frozen=True)
class Chart:
    """A drawn history. `x`, `y`: where each night's value is, of `points`' order."""

    svg: Markup
    x: NDArray[np.int_]
    y: NDArray[np.int_]


def draw_chart(title: str, points: Points, days: NDArray[np.int_], labels: Sequence[str], marks: Iterable[tuple[int, str]]) -> Chart:
    """The chart of at least one night.

    `days`: a number for each of `points`' nights, rising, by which it stands on the axis: missing nights leave a gap. `labels`: the dates.
    `marks`: (day, text) of accepted changes.
    """
    axes = _Axes(int(days[0]), int(days[-1]), *_range(points))
    x, y = axes.at(days), axes.up(points.value)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        _grid(axes),
        _dates(x, labels),
        _band(axes, x, points),
        _changes(axes, marks),
        _intervals(axes, x, points),
        _values(x, y, points),
        '<path class="at" d=""/></svg>',
    ]
    return Chart(Markup("".join(parts)), x, y)  # noqa: S704 - numbers of ours; texts are escaped


@dataclass(frozen=True)
class _Axes:
    """From days and values to places in the view. `low`, `high`: the vertical axis's ends. The last day is at the right."""

    first: int
    last: int
    low: float
    high: float

    def at(self, day: NDArray[np.int_] | int) -> NDArray[np.int_]:
        share = 1 - (self.last - np.asarray(day)) / max(self.last - self.first, _LEAST_DAYS)
        return np.asarray(np.rint(_LEFT + _INSET + share * (_RIGHT - _LEFT - 2 * _INSET)), dtype=int)

    def up(self, value: Array | float) -> NDArray[np.int_]:
        """What lies beyond the axis is at its end; NaN is at the lower one."""
        share = np.nan_to_num(np.clip((np.asarray(value, dtype=float) - self.low) / (self.high - self.low), 0, 1))
        return np.asarray(np.rint(_BOTTOM - share * (_BOTTOM - _TOP)), dtype=int)


def _range(points: Points) -> tuple[float, float]:
    """The axis's ends: all values and bands; intervals as far as they leave the values room."""
    inner = np.concatenate([points.value, points.expected, points.band.ravel()])
    low, high = float(np.nanmin(inner)), float(np.nanmax(inner))
    reach = _INTERVALS_REACH * (high - low)
    ends = points.interval[np.isfinite(points.interval)]
    if ends.size:
        low, high = min(low, max(float(ends.min()), low - reach)), max(high, min(float(ends.max()), high + reach))
    edge = 0.05 * (high - low) or 0.02 * abs(high) or 1.0
    return low - edge, high + edge


def _grid(axes: _Axes) -> str:
    """Lines and numbers at round values."""
    ticks = MaxNLocator(nbins=5, steps=[1, 2, 5, 10]).tick_values(axes.low, axes.high)
    places = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))
    at = [(int(axes.up(tick)), f"{tick:,.{places}f}") for tick in ticks if axes.low <= tick <= axes.high]
    lines = "".join(f"M{_LEFT} {up}H{_RIGHT}" for up, _ in at)
    texts = "".join(f'<text x="{_RIGHT + 12}" y="{up + 7}">{text}</text>' for up, text in at)
    return f'<path class="grid" d="{lines}"/><g class="ys">{texts}</g>'


def _dates(x: NDArray[np.int_], labels: Sequence[str]) -> str:
    """At most eight dates, evenly over the axis: the year only where it is new."""
    chosen, before, year = [], -1000, ""
    for place, date in enumerate(labels):
        if x[place] - before >= (_RIGHT - _LEFT) / _MOST_LABELS:
            chosen.append((int(x[place]), date if date[:4] != year else date[5:]))
            before, year = int(x[place]), date[:4]
    return f'<g class="xs">{"".join(f"""<text x="{at}" y="{_BOTTOM + 30}">{escape(text)}</text>""" for at, text in chosen)}</g>'


def _band(axes: _Axes, x: NDArray[np.int_], points: Points) -> str:
    """The band in which a night is the same, and the expected value in it; both end where there is no baseline."""
    (lower, upper), middle = axes.up(points.band), axes.up(points.expected)
    fill, line = [], []
    for start, end in _runs(np.isfinite(points.expected)):
        left, right = int(x[start]) - 6, int(x[end - 1]) + 6
        top = [f"M{left} {upper[start]}", *(f"L{x[at]} {upper[at]}" for at in range(start, end)), f"H{right}"]
        bottom = [f"V{lower[end - 1]}", *(f"L{x[at]} {lower[at]}" for at in range(end - 1, start - 1, -1)), f"H{left}z"]
        fill += top + bottom
        line += [f"M{left} {middle[start]}", *(f"L{x[at]} {middle[at]}" for at in range(start, end)), f"H{right}"]
    return f'<path class="band" d="{"".join(fill)}"/><path class="expected" d="{"".join(line)}"/>' if fill else ""


def _runs(known: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Ranges (start, end) of places that are known."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(int)))
    return [(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _changes(axes: _Axes, marks: Iterable[tuple[int, str]]) -> str:
    """A line before the first night of each accepted change, with a flag whose text shows on hover."""
    parts = []
    for day, text in marks:
        if axes.first <= day <= axes.last:
            place = int(axes.at(day)) - 5
            flag = f'<path class="flag" d="M{place} {_TOP - 22}h18l-5 8 5 8h-18z"/>'
            parts.append(f'<g class="accepted"><path d="M{place} {_TOP - 14}V{_BOTTOM}"/>{flag}<title>{escape(text)}</title></g>')
    return "".join(parts)


def _intervals(axes: _Axes, x: NDArray[np.int_], points: Points) -> str:
    """A line for each night's 95 % interval, in the colour of its verdict."""
    low, high = axes.up(points.interval)
    known = np.isfinite(points.interval).all(axis=0)
    paths = []
    for code, verdict in enumerate(VERDICTS):
        lines = "".join(f"M{x[place]} {low[place]}V{high[place]}" for place in np.flatnonzero(known & (points.verdict == code)))
        paths.append(f'<path class="iv {verdict}" d="{lines}"/>' if lines else "")
    return "".join(paths)


def _values(x: NDArray[np.int_], y: NDArray[np.int_], points: Points) -> str:
    """A mark for each night: a triangle where it changed, a dot elsewhere, by which shape alone tells what matters."""
    paths = []
    for code, verdict in enumerate(VERDICTS):
        places = np.flatnonzero(points.verdict == code)
        shape = _MARKS.get(str(verdict), "h0")
        few = " few" if len(points.value) <= 100 else ""
        marks = "".join(f"M{x[place]} {y[place]}{shape}" for place in places)
        paths.append(f'<path class="mark {verdict}{few}" d="{marks}"/>' if marks else "")
    return "".join(paths)
