"""Intervals on the linear scale, for scores and counts, which may be 0: means and differences, where rates have ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from experiments.stats.estimate import LEVEL, Estimate, estimate_from_mean


def pooled_deviation(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """Standard deviation of repeats, in their unit, and its degrees of freedom, over groups of repeats: ANOVA's within-group error.

    (0, 0) where no group has two.
    """
    squares, df = 0.0, 0
    for group in groups:
        values = np.asarray(group, dtype=float)
        if values.size > 1:
            squares += float(((values - values.mean()) ** 2).sum())
            df += values.size - 1
    return (math.sqrt(squares / df), df) if df else (0.0, 0)


def mean_interval(values: Sequence[float], *, spread: tuple[float, int] | None = None, level: float = LEVEL) -> Estimate:
    """Arithmetic mean of repeats with a t interval. Raises ValueError for none.

    `spread` is `pooled_deviation` of comparable cells. The repeats' own deviation counts where it is larger: the noise of a count grows
    with it, and two repeats that happen to agree prove nothing. One repeat has no interval.
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
    """`cell` less `baseline`, each given by its repeats in order.

    As `ratio_interval`: from three interleaved repeats on, a paired t interval; fewer, or with `paired` False: both errors in quadrature,
    degrees of freedom by Welch (1947) and Satterthwaite (1946). Raises ValueError where a side has no repeats.
    """
    pairs = min(len(cell), len(baseline))
    if paired and pairs >= 3 and len(cell) == len(baseline):
        return mean_interval([a - b for a, b in zip(cell, baseline, strict=True)], level=level)
    a, b = (mean_interval(side, spread=spread, level=level) for side in (cell, baseline))
    weight = a.se**4 / a.df + b.se**4 / b.df
    df = (a.se**2 + b.se**2) ** 2 / weight if 0 < weight < math.inf else min(a.df, b.df)
    return estimate_from_mean(a.value - b.value, math.hypot(a.se, b.se), df, pairs, level)
