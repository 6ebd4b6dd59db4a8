"""A comparison of two sweeps with the spread between sweeps in its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.stats.estimate import LEVEL, Estimate, estimate_from_log, estimate_from_mean
from experiments.stats.spread import Spread


def both_sides(spread: Spread) -> Spread:
    """The spread of the difference of two sweeps (or hosts) of one kind: sqrt(2) as large, and known as well."""
    return Spread(math.sqrt(2) * spread.sd, spread.df)


def with_spread(comparison: Estimate, spreads: Sequence[Spread], *, level: float = LEVEL) -> Estimate:
    """`comparison` (a ratio, or a difference) with independent `spreads` added to its squared standard error.

    Degrees of freedom by Satterthwaite (1946): (sum of variances)^2 / sum of variance^2 / df. An unbounded comparison stays so.
    """
    if not math.isfinite(comparison.se):
        return comparison
    parts = [(comparison.se**2, comparison.df), *((spread.sd**2, spread.df) for spread in spreads)]
    variance = sum(part for part, _ in parts)
    weight = sum(part**2 / df for part, df in parts)
    df = variance**2 / weight if weight > 0 else min(df for _, df in parts)
    make, value = (estimate_from_mean, comparison.value) if comparison.linear else (estimate_from_log, math.log(comparison.value))
    return make(value, math.sqrt(variance), df, comparison.n, level)


def unbounded(comparison: Estimate) -> Estimate:
    """The same value with no interval: for a comparison whose noise is not known."""
    make, value = (estimate_from_mean, comparison.value) if comparison.linear else (estimate_from_log, math.log(comparison.value))
    return make(value, math.inf, 1, comparison.n, LEVEL)
