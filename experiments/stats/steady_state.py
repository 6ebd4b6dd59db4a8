"""The steady state of step times: the step from which on they stay level."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from experiments.stats.estimate import finite_series


@dataclass(frozen=True)
class Steady:
    """Whether and where step times settle. `start` is an index into the series (0-based); None if they never settle."""

    settled: bool
    start: int | None
    drift: float | None  # relative change between the halves of the rest; None for too few steps


def steady_state(times: ArrayLike, *, batch: int = 5, tolerance: float = 0.05, least: int = 8) -> Steady:
    """Where step times (n,) in s settle: MSER-5 (White 1997; White, Cobb & Spratt 2000), then a check that the rest is level.

    MSER cuts the series, within its first half, where the squared standard error of the rest is smallest. This uses medians of `batch`
    steps instead of means, so that one slow step does not count as a transient. It accepts a cut only if the mean of the dropped part
    differs from the rest by 2 %. The series does not settle (`settled` False) if the halves of the rest differ by more than `tolerance`
    (relative) and by more than three standard errors, or if n < `least`. Raises ValueError for n = 0 or a time that is not finite.
    """
    x = finite_series(times)
    if x.size < least:
        return Steady(False, None, None)
    size = max(1, min(batch, x.size // least))
    medians = np.median(x[: x.size // size * size].reshape(-1, size), axis=1)
    n = medians.size
    errors = [float(medians[d:].var()) / (n - d) for d in range(n // 2 + 1)]
    cut = int(np.argmin(errors))
    rest = medians[cut:]
    if cut and abs(float(medians[:cut].mean()) / float(rest.mean()) - 1) < 0.02:
        cut, rest = 0, medians
    first, second = np.array_split(rest, 2)
    drift = float(second.mean() / first.mean() - 1)
    error = math.hypot(*(float(half.std(ddof=1)) / math.sqrt(half.size) for half in (first, second))) / float(first.mean())
    if abs(drift) > tolerance and abs(drift) > 3 * error:
        return Steady(False, None, drift)
    return Steady(True, cut * size, drift)
