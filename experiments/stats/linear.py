"""Intervals on the linear scale, of means and differences: for scores and counts, which may be 0 and so have no ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from experiments.stats.estimate import LEVEL, Estimate, estimate_from_mean


def pooled_deviation(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """(standard deviation of repeats, in their unit, its degrees of freedom), pooled over groups: ANOVA's within-group error.

    (0, 0) if no group has two repeats.
    """
    squares, df = 0.0, 0
    for group in groups:
        values = np.asarray(group, dtype=float)
        if values.size > 1:
            squares += float(((values - values.mean()) ** 2).sum())
            df += values.size - 1
    return (math.sqrt(squares / df), df) if df else (0.0, 0)


def mean_interval(values: Sequence[float], *, spread: tuple[float, int] | None = None, level: float = LEVEL) -> Estimate:
    """The arithmetic mean of repeats with a t interval. Raises ValueError for no repeats.

    `spread` is `pooled_deviation` of comparable cells. If the repeats' own deviation is larger it is used instead: the noise of a count
    grows with the count. Two repeats that agree by chance do not narrow the interval. A single repeat has an unbounded interval.
    """
    if not values:
        raise ValueError("no repeats")
    n = len(values)
    array = np.asarray(values, dtype=float)
    if n == 1:
        return estimate_from_mean(float(array[0]), math.inf, 1, 1, level)
    own = float(array.std(ddof=1))
    sd, df = (spread[0], spread[1]) if spread and spread[0] > own else (own, n - 1)
    return estimate_from_mean(float(array.mean()), sd / math.sqrt(n), df, n, level)


def difference_interval(
    cell: Sequence[float],
    baseline: Sequence[float],
    *,
    spread: tuple[float, int] | None = None,
    paired: bool = True,
    level: float = LEVEL,
) -> Estimate:
    """The difference `cell` - `baseline`, each given by its repeats in order.

    With equally many interleaved repeats, at least three: a paired t interval. Otherwise, or with `paired` False: the root of the sum of
    both squared errors, with degrees of freedom by Welch (1947) and Satterthwaite (1946). Raises ValueError if a side has no repeats.
    """
    pairs = min(len(cell), len(baseline))
    if paired and pairs >= 3 and len(cell) == len(baseline):
        return mean_interval([a - b for a, b in zip(cell, baseline, strict=True)], level=level)
    a, b = (mean_interval(side, spread=spread, level=level) for side in (cell, baseline))
    weight = a.se**4 / a.df + b.se**4 / b.df
    df = (a.se**2 + b.se**2) ** 2 / weight if 0 < weight < math.inf else min(a.df, b.df)
    return estimate_from_mean(a.value - b.value, math.hypot(a.se, b.se), df, pairs, level)
