"""Which of many settings is best, by successive elimination: each round measures those left once, and drops what is surely behind.

Successive elimination is Even-Dar, Mannor & Mansour (2006, Journal of Machine Learning Research 7, algorithm 3), as racing Maron & Moore
(1993, NIPS 6). Rounds are blocks: what a round does to all settings cancels, as in F-Race (Birattari et al. 2002, GECCO).

    y = setting + round + error,  the error's standard deviation being the setting's own

Two or three trials say little of a setting's own spread, and one spread pooled over all is wrong where they differ. So each variance is
moderated by the law of all settings' variances (experiments/stats/variances.py: Smyth 2004, its parameters integrated), with two safeguards
that benchmarks/bench_tune.py shows the need of: settings are never taken to be more alike than MOST_D0 says, and of one whose own trials
lie further apart than the law lets expect (NOISY) these count alone.

A setting is behind where its one-sided p-value against one of those ahead is below chance / (r (r - 1)) / m after round r, m being the
settings left. Over all rounds and m settings these add up to `chance`, whatever the dependence between rounds (Bonferroni).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from experiments.stats.estimate import Array
from experiments.stats.interim_looks import RACE_CHANCE
from experiments.stats.variances import SampleVariance, learn_variances

FIRST_LOOK = 2  # rounds: a single trial does not show what varies between trials
MOST_D0 = 6.0  # degrees of freedom of the law of variances, at most: log variances of settings are at least 0.63 apart (standard deviation)
NOISY = 0.05  # a setting's own variance this improbable under the law is not moderated
AHEAD = 3  # of the best means that a setting is held against: the very best may be noisy itself
Mask = NDArray[np.bool_]
_NOTHING_LEFT = 1e-6  # of degrees of freedom
_NO_WEIGHT = 1e-4  # of a point of the law's grid


def level_of(rounds: int, settings: int, chance: float = RACE_CHANCE) -> float:
    """The p-value below which one of so many settings is behind after so many rounds; over rounds and settings they add up to `chance`.

    Raises ValueError below FIRST_LOOK rounds, where nothing is judged, and for no settings.
    """
    if rounds < FIRST_LOOK or settings < 1:
        raise ValueError(f"a race is judged from round {FIRST_LOOK} on, with a setting left; not after {rounds} with {settings}")
    return chance / (rounds * (rounds - 1)) / settings


@dataclass(frozen=True)
class Standing:
    """How settings stand after a round; arrays (settings,).

    leader: the index of the best mean; -1 where none can be judged. behind: the leader's mean less the setting's; NaN for those not in the
    race. low, high: its interval, each end at the round's level. dropped: those surely behind the leader, or another of those ahead.
    """

    leader: int
    behind: Array
    low: Array
    high: Array
    dropped: Mask

    def within(self, racing: Mask, margin: float) -> bool:
        """Whether the leader is surely behind none of `racing` by `margin` or more: it is as good as the best, but for that."""
        others = racing & (np.arange(racing.size) != self.leader)
        return self.leader >= 0 and bool((-self.low[others] < margin).all())


def standing(values: ArrayLike, racing: Mask, *, able: Mask | None = None, chance: float = RACE_CHANCE) -> Standing:
    """How settings stand after the rounds of `values` (settings, rounds), more being better; NaN where a setting has no value.

    `racing` (settings,): those still in the race; the values of others tell of rounds and spreads only. `able` (settings,): those that may
    lead and drop others, else all. A setting with values in fewer than FIRST_LOOK rounds neither leads nor drops. Raises ValueError for
    other shapes.
    """
    y = np.asarray(values, dtype=float)
    if y.ndim != 2 or racing.shape != y.shape[:1]:
        raise ValueError(f"a race needs values (settings, rounds) and a mask (settings,), got {y.shape} and {racing.shape}")
    settings, rounds = y.shape
    there = np.isfinite(y)
    judged = racing & (there.sum(axis=1) >= FIRST_LOOK)
    leading = judged if able is None else judged & able
    low, high = np.full(settings, -math.inf), np.full(settings, math.inf)
    nobody = Standing(-1, np.full(settings, math.nan), low, high, np.zeros(settings, bool))
    if not leading.any():
        return nobody
    means, variances, left = _fit(y, there)
    noise = _moderated(variances, left)
    if noise is None:
        return nobody
    level = level_of(rounds, int(racing.sum()), chance)
    ahead = np.flatnonzero(leading)[np.argsort(-means[leading], kind="stable")][:AHEAD]
    dropped = np.zeros(settings, bool)
    for place, one in enumerate(ahead):
        common = (there & there[one]).sum(axis=1)
        at = np.flatnonzero(judged & (common >= FIRST_LOOK) & (np.arange(settings) != one))
        lead, law = means[one] - means[at], noise.of_difference(at, int(one), common[at])
        dropped[at] |= law.chance_beyond(lead) < level
        if place == 0:
            half = law.exceeded(level)
            low[at], high[at] = lead - half, lead + half
    leader = int(ahead[0])
    low[leader] = high[leader] = 0.0
    return Standing(leader, np.where(racing, means[leader] - means, math.nan), low, high, dropped)


def bounds(values: ArrayLike, settings: int, *, chance: float = RACE_CHANCE) -> tuple[Array, Array]:
    """Ends (n,) of each setting's mean, each end at the level of `level_of` for `settings`; unbounded below FIRST_LOOK values.

    `values`: (n, rounds), NaN where there is none. A setting is held to a limit, not to others: so rounds do not cancel.
    """
    y = np.asarray(values, dtype=float)
    there = np.isfinite(y)
    count = there.sum(axis=1)
    first = np.where(count > 0, y[np.arange(len(y)), there.argmax(axis=1)], 0.0)[:, None]
    filled = np.where(there, y - first, 0.0)  # so that the mean of equal values is that value: it may be the limit itself
    means = filled.sum(axis=1) / np.maximum(count, 1)
    squares = np.where(there, (filled - means[:, None]) ** 2, 0.0).sum(axis=1)
    left = np.maximum(count - 1.0, 0.0)
    noise = _moderated(np.where(left > 0, squares / np.maximum(left, 1), 0.0), left)
    half = np.full(y.shape[0], math.inf)
    at = np.flatnonzero(count >= FIRST_LOOK)
    if noise is not None and at.size:
        law = _Mixture(np.sqrt(noise.variance[at] / count[at, None]), noise.df[at], noise.weight)
        half[at] = law.exceeded(level_of(y.shape[1], settings, chance))
    return first[:, 0] + means - half, first[:, 0] + means + half


def _fit(y: Array, there: Mask) -> tuple[Array, Array, Array]:
    """Least squares of settings and rounds: (settings,) means, variances of one trial and their degrees of freedom.

    Settings are projected out, which leaves as many equations as rounds. A variance is the setting's sum of squared residuals by the trace
    of its block of the residual maker (MacKinnon & White 1985), as in experiments/stats/layout.py.
    """
    count, mask = there.sum(axis=1), there.astype(float)
    share = mask / np.maximum(count, 1)[:, None]
    centre = float(y[there].mean())
    filled = np.where(there, y - centre, 0.0)
    own = filled.sum(axis=1) / np.maximum(count, 1)
    normal = np.diag(mask.sum(axis=0)) - mask.T @ share
    inverse = np.linalg.pinv(normal, rcond=1e-10, hermitian=True)
    effects = inverse @ (filled - mask * own[:, None]).sum(axis=0)
    means = own - share @ effects
    residuals = np.where(there, filled - means[:, None] - effects, 0.0)
    residuals[np.abs(residuals) < 1e-12 * np.abs(filled).max()] = 0.0
    # of setting c the rounds take tr(inverse R) with R = diag(mask_c) - mask_c mask_c' / count_c
    used = mask @ np.diag(inverse) - np.einsum("ij,jk,ik->i", mask, inverse, share)
    left = np.where(count > 1, count - 1 - used, 0.0).clip(0)
    variances = np.where(left > _NOTHING_LEFT, (residuals**2).sum(axis=1) / np.maximum(left, _NOTHING_LEFT), 0.0)
    return means + centre, variances, left


@dataclass(frozen=True)
class _Mixture:
    """Laws of n errors, each a mixture of sd * t(df), (n, points), with weights (points,)."""

    sd: Array
    df: Array
    weight: Array

    def chance_beyond(self, x: Array) -> Array:
        """(n,) P(error > x); 0 where there is no error and x is more than 0."""
        return np.asarray((self.weight * special.stdtr(self.df, -x[:, None] / np.maximum(self.sd, 1e-300))).sum(axis=1))

    def exceeded(self, level: float) -> Array:
        """(n,) x with P(error > x) = `level`, to one part in a million."""
        high: Array = (self.sd * special.stdtrit(self.df, 1 - level)).max(axis=1)
        low = np.zeros_like(high)
        for _ in range(20):
            middle = (low + high) / 2
            above = self.chance_beyond(middle) > level
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return high


@dataclass(frozen=True)
class _Noise:
    """Each setting's variance of one trial at each point of the law's grid and its degrees of freedom, (settings, points); their weight."""

    variance: Array
    df: Array
    weight: Array

    def of_difference(self, at: NDArray[np.intp], other: int, common: NDArray[np.int_]) -> _Mixture:
        """The law of the error of each difference of `at` from `other`.

        `common`: the rounds that each has in common with `other`. Degrees of freedom by Welch (1947) and Satterthwaite (1946).
        """
        a, b = self.variance[at] / common[:, None], self.variance[other] / common[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            df = np.where(a + b > 0, (a + b) ** 2 / (a**2 / self.df[at] + b**2 / self.df[other]), 1.0)
        return _Mixture(np.sqrt(a + b), df, self.weight)


def _moderated(variances: Array, left: Array) -> _Noise | None:
    """The variances (settings,) on `left` degrees of freedom, moderated by the law that they make together; None where there is none."""
    known = left > _NOTHING_LEFT
    if not known.any():
        return None
    law = learn_variances([SampleVariance(float(v), float(d)) for v, d in zip(variances[known], left[known], strict=True)])
    keep = law.weight > _NO_WEIGHT
    points = np.column_stack([law.scale, np.minimum(law.df, MOST_D0)])[keep]
    distinct, place = np.unique(points, axis=0, return_inverse=True)
    scale, d0 = distinct.T
    weight: Array = np.bincount(place.ravel(), law.weight[keep] / law.weight[keep].sum()).astype(float)
    own, df = variances[:, None], np.maximum(left, _NOTHING_LEFT)[:, None]
    mixed, mixed_df = (d0 * scale + df * own) / (d0 + df), d0 + df
    with np.errstate(divide="ignore", invalid="ignore"):
        further = np.where(scale > 0, own / scale, np.where(own > 0, math.inf, 0.0))
    noisy = known & ((weight * special.fdtrc(df, d0, further)).sum(axis=1) < NOISY)
    mixed[noisy], mixed_df[noisy] = own[noisy], df[noisy]
    return _Noise(mixed, mixed_df, weight)
