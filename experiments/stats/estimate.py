"""Estimates: a value with its confidence interval, on the logarithmic or the linear scale, and Student's t for such intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array = NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with its interval [low, high]. `se`: standard error; `df`: its degrees of freedom; `n`: number of repeats.

    On the logarithmic scale the value is a positive quantity (samples/s, or a ratio), and `se` is the standard error of its logarithm. If
    `linear` the value is any number (a score, a count or a difference), and `se` has its unit.
    """

    value: float
    low: float
    high: float
    se: float
    df: float
    n: int = 1
    linear: bool = False

    @property
    def relative(self) -> float:
        """Half the interval's width / the value, for positive values: 0.012 is printed as ±1.2 %."""
        return (self.high - self.low) / (2 * self.value)

    @property
    def half_width(self) -> float:
        """Half the interval's width, in the value's unit."""
        return (self.high - self.low) / 2

    @property
    def p_value(self) -> float:
        """Two-sided p-value of the hypothesis that the ratio is 1, or the difference 0 (t test of `effect` / `se`)."""
        effect = abs(self.effect)
        if self.se == 0:
            return 0.0 if effect else 1.0
        return 2 * t_tail(effect / self.se, self.df)

    def at(self, level: float) -> Estimate:
        """The same estimate with a t interval of another confidence, such as 0.99."""
        make = estimate_from_mean if self.linear else estimate_from_log
        return make(self.effect, self.se, self.df, self.n, level)

    def inverse(self) -> Estimate:
        """The comparison the other way round: 1 / a ratio, or a difference with the other sign."""
        if self.linear:
            return replace(self, value=-self.value, low=-self.high, high=-self.low)
        return replace(self, value=1 / self.value, low=1 / self.high, high=1 / self.low if self.low > 0 else math.inf)

    @property
    def effect(self) -> float:
        """Distance from no change: the logarithm of a ratio, or a difference itself."""
        return self.value if self.linear else math.log(self.value)


def percentile(values: ArrayLike, q: float) -> float:
    """The q-th percentile (0 to 100) of `values` (n,), linear between order statistics. Raises ValueError for n = 0 or q out of range."""
    array = finite_series(values)
    return float(np.percentile(array, q))


def estimate_from_log(log: float, se: float, df: float, n: int, level: float) -> Estimate:
    """A t interval on the logarithmic scale: `log` and `se` are the logarithm of the value and its standard error.

    The interval is unbounded if `se` is not finite.
    """
    if not math.isfinite(se):
        return Estimate(math.exp(log), 0.0, math.inf, math.inf, 1, n)
    half = min(t_value(level, df) * se, 300.0)
    return Estimate(math.exp(log), math.exp(log - half), math.exp(log + half), se, df, n)


def estimate_from_mean(mean: float, se: float, df: float, n: int, level: float) -> Estimate:
    """A t interval on the linear scale. `se` has the unit of `mean`; the interval is unbounded if `se` is not finite."""
    if not math.isfinite(se):
        return Estimate(mean, -math.inf, math.inf, math.inf, 1, n, linear=True)
    half = t_value(level, df) * se
    return Estimate(mean, mean - half, mean + half, se, df, n, linear=True)


def exponential(difference: Estimate) -> Estimate:
    """The ratio that a difference of logarithms is: its value and its bounds, on the logarithmic scale."""
    low, high = (math.exp(max(-700.0, min(700.0, end))) for end in (difference.low, difference.high))
    if not math.isfinite(difference.se):
        low, high = 0.0, math.inf
    return Estimate(math.exp(difference.value), low, high, difference.se, difference.df, difference.n)


def t_value(level: float, df: float) -> float:
    """Two-sided quantile of Student's t for confidence `level`; of the normal distribution if `df` is infinite."""
    return float(special.ndtri((1 + level) / 2) if math.isinf(df) else special.stdtrit(df, (1 + level) / 2))


def t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t; of the normal distribution if `df` is infinite."""
    return float(special.ndtr(-t) if math.isinf(df) else special.stdtr(df, -t))


def finite_series(values: ArrayLike) -> Array:
    """`values` as a float array (n,), n >= 1. Raises ValueError for another shape or values that are not finite."""
    array: Array = np.asarray(values, dtype=float)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"expected a series of numbers, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("the series holds values that are not finite")
    return array
