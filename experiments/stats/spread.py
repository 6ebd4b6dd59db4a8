"""How far trials of one setting lie apart: what its own repeats say of it, and what past sweeps do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from experiments.stats.estimate import finite_series

_ALIKE = 0.5  # level of the test of whether repeats are as far apart as past sweeps say: high, since two or three of them show little
_DIFFER = 0.25  # level of the test of two cells' spreads
_FAR_WIDER = 0.025  # level of the test of whether a layout makes a difference's error too wide: low, since pairs are narrow by chance too
_LEAST_DF = 1.5  # of the narrower error there: two rounds, of one degree of freedom, say too little


@dataclass(frozen=True)
class Spread:
    """The standard deviation between trials of one setting, of the logarithm (in the metric's unit on linear scales).

    `df`: the degrees of freedom with which it is known for one cell, that is, of the scaled inverse chi-squared distribution of a cell's
    variance. It is small where the cells it was learnt from differ in their spread, however many their trials. A trial's value holds the
    noise of its steps, so `sd` holds it too. Raises ValueError for a negative or infinite `sd`, or `df` of 0 or less.
    """

    sd: float
    df: float

    def __post_init__(self) -> None:
        if not 0 <= self.sd < math.inf or not self.df > 0:
            raise ValueError(f"a spread needs 0 <= sd < inf and df > 0, got {self.sd} and {self.df}")


# (pool, name of its device where the trials know it, workload, metric) -> spread between trials as past sweeps show it; None: not known
SpreadLookup = Callable[[str, str | None, str, str], Spread | None]


def spread_of(values: ArrayLike, known: Spread | None = None) -> Spread | None:
    """The spread of one cell's repeats, `values` (n,) on the scale of comparison. None for a single one of which nothing is known.

    With `known`, the mean of the posterior precision, by its inverse: squares and degrees of freedom add up (Gelman et al., Bayesian Data
    Analysis, 3rd edition, section 2.6). If the repeats lie further apart than that can be by chance (F test at 50 %), they alone count, so
    that a noisy cell does not pass for a quiet one. Raises ValueError for no values, or one that is not finite.
    """
    array = finite_series(values)
    df = array.size - 1
    if df == 0:
        return known
    variance = float(array.var(ddof=1))
    if known is None:
        return Spread(math.sqrt(variance), df)
    from scipy.special import fdtrc

    if known.sd == 0 or fdtrc(df, min(known.df, 1e9), variance / known.sd**2) < _ALIKE:
        return Spread(math.sqrt(variance), df)
    if math.isinf(known.df):
        return known
    both = known.df + df
    return Spread(math.sqrt((known.df * known.sd**2 + df * variance) / both), both)


def spreads_differ(one: Spread, other: Spread) -> bool:
    """Whether an F test at 25 %, two-sided, finds that two spreads differ.

    The level is high because two or three trials show little: at 5 % one cell's two would have to be 25 times as far apart as the other's.
    At 25 % it is 5 times; of three trials each, 2.6 times.
    """
    from scipy.special import fdtri

    small, large = sorted((one, other), key=lambda spread: spread.sd)
    return large.sd**2 > small.sd**2 * float(fdtri(large.df, small.df, 1 - _DIFFER / 2))


def far_wider(one: Spread, other: Spread) -> bool:
    """Whether an F test at 2.5 %, one-sided, finds that `one` is the wider spread. False where `other` is 0, as of counts that tie, or has
    one degree of freedom."""
    from scipy.special import fdtri

    return other.sd > 0 and other.df > _LEAST_DF and one.sd**2 > other.sd**2 * float(fdtri(one.df, other.df, 1 - _FAR_WIDER))


def mean_error(values: ArrayLike, errors: ArrayLike, known: Spread | None = None) -> tuple[float, float]:
    """(standard error, degrees of freedom) of the mean of one cell's repeats, `values` (n,); the error is infinite if it is not known.

    `errors` (n,): what each trial's steps imply, not finite where unknown. They are a floor, not added: trials differ by the noise of their
    steps too, so the spread between trials holds it.
    """
    spread = spread_of(values, known)
    if spread is None:
        return math.inf, 1.0
    own = np.asarray(errors, dtype=float)
    floor = math.sqrt(float((own[np.isfinite(own)] ** 2).sum())) / own.size
    return max(spread.sd / math.sqrt(own.size), floor), spread.df
