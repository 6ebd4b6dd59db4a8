"""How often intervals are right, counted on pairs between which nothing differs: shares with their exact intervals.

Of two equal things the true ratio is 1. An interval that leaves 1 out is wrong, and a verdict `faster` or `slower` is false.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from experiments.config.strict import Strict
from experiments.stats.estimate import LEVEL, Estimate, finite_series, t_value
from experiments.stats.spread import Spread


class Share(Strict):
    """`hits` of `of` cases."""

    hits: int = 0
    of: int = 0

    @property
    def value(self) -> float | None:
        """Between 0 and 1; None without a case."""
        return self.hits / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """Exact 95 % interval of the probability behind the share: see `rate_interval`."""
        return rate_interval(self.hits, self.of)

    def __add__(self, other: Share) -> Share:
        return Share(hits=self.hits + other.hits, of=self.of + other.of)


def share_of(cases: Sequence[bool]) -> Share:
    """The share of true ones."""
    return Share(hits=sum(cases), of=len(cases))


def rate_interval(hits: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """Exact interval of the rate hits / trials (Clopper & Pearson 1934); 0 to 1 without a trial.

    Raises ValueError for more hits than trials.
    """
    if trials == 0:
        return 0.0, 1.0
    from scipy.stats import binomtest  # scipy.stats takes a second to import: only where shares are shown

    interval = binomtest(hits, trials).proportion_ci(level, method="exact")
    return float(interval.low), float(interval.high)


def covers_no_change(comparison: Estimate) -> bool:
    """Whether the interval of a ratio holds 1, or that of a difference 0."""
    nothing = 0.0 if comparison.linear else 1.0
    return comparison.low <= nothing <= comparison.high


def spreads_without_each(a: ArrayLike, b: ArrayLike) -> list[Spread | None]:
    """For each i, the spread between trials as all pairs but the i-th show it.

    `a`, `b`: logarithms of the arms' values, (n,) each, in pairs. The standard deviation is pooled over the arms, each about its own mean
    of the others (ANOVA's within-group error), with 2 (n - 2) degrees of freedom. So the interval that is made of it for pair i has not
    seen pair i (leave one out, Stone 1974). None where fewer than 2 pairs are left. Raises ValueError if the lengths differ.
    """
    left, right = finite_series(a), finite_series(b)
    if left.shape != right.shape:
        raise ValueError(f"{left.size} values for {right.size}")
    rest = left.size - 1
    if rest < 2:
        return [None] * left.size
    both = np.stack([left, right])
    spreads: list[Spread | None] = []
    for i in range(left.size):
        others = np.delete(both, i, axis=1)
        squares = float(((others - others.mean(axis=1, keepdims=True)) ** 2).sum())
        df = 2 * (rest - 1)
        spreads.append(Spread(math.sqrt(squares / df), df))
    return spreads


def covered_by_steps(a: ArrayLike, b: ArrayLike, se_a: ArrayLike, se_b: ArrayLike, level: float = LEVEL) -> Share:
    """How many pairs an interval would cover that knows the noise between steps alone, and not that between trials.

    `a`, `b`: logarithms of the arms' values, (n,); `se_a`, `se_b`: their standard errors from the steps within each trial, (n,).
    """
    differences = np.abs(np.asarray(a, float) - np.asarray(b, float))
    within = np.hypot(np.asarray(se_a, float), np.asarray(se_b, float))
    return share_of([bool(hit) for hit in differences <= t_value(level, math.inf) * within])


def times_apart(a: ArrayLike, b: ArrayLike, ses: ArrayLike) -> float | None:
    """How many times further trials lie apart than their steps suggest: the standard deviation between trials, pooled over the arms, over
    the root mean square of `ses`, their standard errors within (m,). None for fewer than 2 pairs, or steps without noise."""
    left, right = finite_series(a), finite_series(b)
    within = math.sqrt(float(np.mean(np.square(np.asarray(ses, float))))) if np.size(ses) else 0.0
    if left.size < 2 or right.size < 2 or not within > 0:
        return None
    squares = float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum())
    return math.sqrt(squares / (left.size + right.size - 2)) / within
