"""The steady state of step times: the step from which on they stay level."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from experiments.stats.estimate import Array, finite_series
from experiments.stats.noise_models import MOST_POINTS, trend

LEAST = 8  # steps; fewer are too few to tell whether they are level
_SURE = 0.99  # confidence with which a drift must differ from 0


@dataclass(frozen=True)
class Steady:
    """Whether and where step times settle. `settled` is None for too few steps to tell (LEAST).

    `start` is an index into the series (0-based); None if they never settle. `drift`: relative change of the step times from then on, to
    the window's end, by a straight line; of the part that was looked at, where they never settle. Both are None for too few steps.
    """

    settled: bool | None
    start: int | None
    drift: float | None


def steady_state(times: ArrayLike, *, kinds: Sequence[Hashable] | None = None, batch: int = 5, tolerance: float = 0.05) -> Steady:
    """Where step times (n,) in s settle: MSER-5 (White 1997; White, Cobb & Spratt 2000), then a check that the rest is level.

    MSER cuts the series, within its first half, where the squared standard error of the rest is smallest. This uses medians of `batch`
    steps instead of means, so that one slow step does not count as a transient. It accepts a cut only if the mean of the dropped part
    differs from the rest by 2 %, and if two levels fit the medians better than a straight line does: a steady drift is no transient. If
    they do not, the cut at which two levels fit best is tried as well.
    The series does not settle (`settled` False)
    - if the halves of the rest differ by more than `tolerance` (relative) and by more than three standard errors, or
    - if the rest drifts: its trend differs from 0 with 99 % confidence, whatever the correlation of the steps (noise_models.trend), and its
      95 % interval reaches `tolerance`.
    Of fewer than LEAST steps nothing is said: `settled` is None.
    `kinds` (n,): each step's kind; a step's time then counts relative to the median of its kind. None: all steps are of one kind.
    Raises ValueError for n = 0, a time that is not finite, or another number of kinds than of times.
    """
    x = finite_series(times)
    if kinds is not None:
        x = _relative(x, kinds)
    if x.size < LEAST:
        return Steady(None, None, None)
    size = max(1, min(batch, x.size // LEAST))
    medians = np.median(x[: x.size // size * size].reshape(-1, size), axis=1)
    cut = _transient(medians)
    rest = medians[cut:]
    drift, drifts = _drift(x[cut * size : medians.size * size], tolerance)
    first, second = np.array_split(rest, 2)
    change = float(second.mean() / first.mean() - 1)
    error = math.hypot(*(float(half.std(ddof=1)) / math.sqrt(half.size) for half in (first, second))) / float(first.mean())
    if drifts or (abs(change) > tolerance and abs(change) > 3 * error):
        return Steady(False, None, drift)
    return Steady(True, cut * size, drift)


def _relative(times: Array, kinds: Sequence[Hashable]) -> Array:
    """Each of `times` (n,) over the median of its kind."""
    if len(kinds) != times.size:
        raise ValueError(f"{len(kinds)} kinds for {times.size} times")
    places: dict[Hashable, list[int]] = {}
    for place, kind in enumerate(kinds):
        places.setdefault(kind, []).append(place)
    relative = times.copy()
    for members in places.values():
        relative[members] /= np.median(times[members])
    return relative


def _transient(medians: Array) -> int:
    """How many of the first `medians` (n,) are a transient."""
    n = medians.size
    line = np.polynomial.Polynomial.fit(np.arange(n), medians, 1)(np.arange(n))
    beside_line = float(((medians - line) ** 2).sum())

    variance_from = [float(medians[cut:].var()) for cut in range(n // 2 + 1)]

    def beside_levels(cut: int) -> float:
        return float(medians[:cut].var()) * cut + variance_from[cut] * (n - cut)

    mser = int(np.argmin([variance / (n - cut) for cut, variance in enumerate(variance_from)]))
    step = 1 + int(np.argmin([beside_levels(cut) for cut in range(1, n // 2 + 1)]))  # for a rest that drifts, of which MSER drops too much
    for cut in (mser, step) if mser else ():
        if abs(float(medians[:cut].mean()) / float(medians[cut:].mean()) - 1) >= 0.02 and beside_levels(cut) < beside_line:
            return cut
    return 0


def _drift(level: Array, tolerance: float) -> tuple[float | None, bool]:
    """(relative change over `level` (n,) by a straight line, whether it is a drift); None where the line begins at 0 or below."""
    block = -(-level.size // MOST_POINTS)
    points = level[: level.size // block * block].reshape(-1, block).mean(1)
    if not float(points.var()) > (1e-9 * float(points.mean())) ** 2:
        return 0.0, False
    change, error = trend(points)
    begins = float(points.mean()) - change / 2
    drift = change / begins if begins > 0 else None
    sure = abs(change) > error.half_width(_SURE)
    return drift, sure and abs(change) + error.half_width(0.95) >= tolerance * max(begins, 0.0)
