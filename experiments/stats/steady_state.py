"""Where step times settle."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from experiments.stats.estimate import positive_series


@dataclass(frozen=True)
class Steady:
    """Where a series of step times settles. `start` is an index into the series, None where it never settles."""

    settled: bool
    start: int | None
    drift: float | None  # relative change between the halves of what was kept


def steady_state(times: ArrayLike, *, batch: int = 5, tolerance: float = 0.05, least: int = 8) -> Steady:
    """Where step times (n,) in s settle: MSER-5 (White 1997; White, Cobb & Spratt 2000), then a check that what is left is level.

    MSER cuts where the squared standard error of what is left is smallest, within the first half. We take medians of each five steps, not
    means, so that one slow step is not a transient, and accept a cut only if what it drops differs by 2 %. It never settles (`settled`
    False) if the halves of the rest still differ by more than `tolerance` and by more than three standard errors, or if there are fewer
    than `least` steps to tell from.
    """
    x = positive_series(times)
    if x.size < least:
        return Steady(False, None, None)
    size = max(1, min(batch, x.size // least))
    medians = np.median(x[: x.size // size * size].reshape(-1, size), axis=1)
    n = medians.size
    errors = [float(medians[d:].var()) / (n - d) for d in range(n // 2 + 1)]
    cut = int(np.argmin(errors))
    kept = medians[cut:]
    if cut and abs(float(medians[:cut].mean()) / float(kept.mean()) - 1) < 0.02:
        cut, kept = 0, medians
    first, second = np.array_split(kept, 2)
    drift = float(second.mean() / first.mean() - 1)
    error = math.hypot(*(float(half.std(ddof=1)) / math.sqrt(half.size) for half in (first, second))) / float(first.mean())
    if abs(drift) > tolerance and abs(drift) > 3 * error:
        return Steady(False, None, drift)
    return Steady(True, cut * size, drift)
