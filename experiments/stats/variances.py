"""What many cells' variances say of another cell's: a scaled inverse chi-square law, whose parameters are known as well as data allow.

Every cell has a variance of its own. The model is Smyth's (2004, Statistical Applications in Genetics and Molecular Biology 3(1), article
3): 1 / sigma_c^2 follows chi^2(d0) / (d0 s0^2), so a variance v_c on d_c degrees of freedom follows s0^2 F(d_c, d0). Where cells differ in
noise d0 is small, and the noise of another cell is known only within wide limits.

Smyth estimates s0 and d0 and takes them as known. With a few cells that is too sure: here both are integrated over a grid, with the priors
that are usual for a scale: uniform in log s0 (Jeffreys), or with an offset in the logarithm of the expected mean square (Box & Tiao 1973,
section 5.2), and uniform in d0^-1/2, which is proportional to how far apart the cells' log variances lie (as Gelman 2006 for such
parameters).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from experiments.stats.estimate import Array
from experiments.stats.root import root
from experiments.stats.spread import Spread

_SCALES = 60  # points of the grid for s0, over a factor of 60 each way
_REACH = 60.0
_HETEROGENEITIES = 12  # points of the grid for d0
_MOST_DF = 1000.0  # more degrees of freedom than any history has; finite, so that JSON can hold it
_LEVELS = (0.95, 0.99)


@dataclass(frozen=True)
class SampleVariance:
    """A variance with its degrees of freedom. `offset`: the part of its expected value that is known to come from something else."""

    variance: float
    df: float
    offset: float = 0.0


@dataclass(frozen=True)
class VarianceLaw:
    """The law of a cell's variance as a weighted grid, arrays (points,): s0^2, d0 (may be infinite), and their probability."""

    scale: Array
    df: Array
    weight: Array

    def spread(self) -> Spread:
        """How far one value of a cell that says nothing of its own noise lies from its mean: mixture of s0 t(d0), as one t.

        Its standard deviation and degrees of freedom are those of the t law with the mixture's 95 % and 99 % intervals.
        """
        return _as_t(self.scale, self.df, self.weight)

    def spread_of(self, own: SampleVariance) -> Spread:
        """The same for a cell whose variance is among those that the law was learned from: Smyth's moderated variance, eq. 6.

        It is (d0 s0^2 + d v) / (d0 + d) on d0 + d degrees of freedom. `offset` must be 0.
        """
        return _as_t(self._moderated(own), self.df + own.df, self.weight)

    def expected(self, own: SampleVariance | None = None) -> float:
        """The mean of s0^2 over the law; with a cell's own variance, of its moderated one."""
        return float((self.weight * (self.scale if own is None else self._moderated(own))).sum())

    def _moderated(self, own: SampleVariance) -> Array:
        share = own.df / (np.where(np.isinf(self.df), 1.0, self.df) + own.df)
        return np.where(np.isinf(self.df), self.scale, (1 - share) * self.scale + share * own.variance)


def learn_variances(samples: Sequence[SampleVariance], *, least_d0: float = 1.0, independent_df: float | None = None) -> VarianceLaw:
    """The law of the cells' variances, each less its offset, from at least one sample with df > 0.

    `least_d0`: the smallest d0 that is thought possible, for cells as unlike each other as can be; all alike is an infinite d0.
    `independent_df`: degrees of freedom of all samples together where they are fewer than the sum of the samples', because cells share
    what varies. The likelihood then counts by their ratio. Raises ValueError for no samples, or a negative or infinite variance.
    """
    if not samples or any(not (0 <= s.variance < math.inf and 0 <= s.offset < math.inf and s.df > 0) for s in samples):
        raise ValueError("learning a law of variances needs at least one finite variance with degrees of freedom")
    df, offset = np.array([s.df for s in samples]), np.array([s.offset for s in samples])
    raw = np.array([s.variance for s in samples])
    mean = float(np.average(raw, weights=df))
    if mean == 0 and not offset.any():
        return VarianceLaw(np.zeros(1), np.full(1, math.inf), np.ones(1))
    variance = np.maximum(raw, 1e-6 * (mean or offset.max()))  # a law on the logarithmic scale has no place for 0
    floor = float(np.average(offset, weights=df))
    geometric = math.exp(float(np.average(np.log(variance), weights=df)))
    lowest = max(floor, min(geometric, mean or geometric) / _REACH)
    total = np.geomspace(lowest, max(mean, lowest) * _REACH, _SCALES)
    with np.errstate(divide="ignore"):
        heterogeneity = least_d0 / np.linspace(0, 1, _HETEROGENEITIES) ** 2
    scale, d0 = (grid.ravel() for grid in np.meshgrid(np.maximum(total - floor, 0), heterogeneity, indexing="ij"))
    likelihood = np.zeros(scale.size)
    for v, d, o in zip(variance, df, offset, strict=True):
        likelihood += _log_density(v, d, scale + o + 1e-9 * mean, d0)
    if independent_df is not None:
        likelihood *= min(1.0, independent_df / float(df.sum()))
    weight = np.exp(likelihood - likelihood.max())
    return VarianceLaw(scale, d0, weight / weight.sum())


def sample_variances(groups: Iterable[Sequence[float]]) -> list[SampleVariance]:
    """The variance of each group of values that has at least two."""
    return [SampleVariance(float(np.var(group, ddof=1)), len(group) - 1) for group in groups if len(group) > 1]


def _log_density(v: float, d: float, scale: Array, d0: Array) -> Array:
    """Logarithm of the density of v ~ scale * F(d, d0), or scale * chi^2(d) / d where d0 is infinite, without terms of v alone."""
    x, finite = v / scale, np.where(np.isinf(d0), 1.0, d0)
    f = d / 2 * np.log(d / finite * x) - (d + finite) / 2 * np.log1p(d * x / finite) - special.betaln(d / 2, finite / 2)
    chi2 = d / 2 * np.log(d / 2 * x) - d * x / 2 - special.gammaln(d / 2)
    return np.asarray(np.where(np.isinf(d0), chi2, f))


def _as_t(scale: Array, df: Array, weight: Array) -> Spread:
    """The t law with the 95 % and 99 % intervals of the mixture over the grid of sqrt(scale) * t(df)."""
    keep = weight > 1e-9
    sd, df, weight = np.sqrt(scale[keep]), df[keep], weight[keep]
    if not sd.any():
        return Spread(0.0, _MOST_DF)
    half, far = (_mixture_quantile(sd, df, weight, level) for level in _LEVELS)
    if not half > 0:
        return Spread(0.0, _MOST_DF)
    best = _df_of_ratio(far / half)
    return Spread(half / float(special.stdtrit(best, (1 + _LEVELS[0]) / 2)), best)


def _mixture_quantile(sd: Array, df: Array, weight: Array, level: float) -> float:
    """x with P(|value| > x) = 1 - level; 0 where so much of the mixture is 0 itself."""
    finite, infinite = np.where(np.isinf(df), 1.0, df), np.isinf(df)
    spread = np.where(sd > 0, sd, 1e-30)

    def excess(log_x: float) -> float:
        z = -math.exp(log_x) / spread
        return float((weight * np.where(infinite, special.ndtr(z), special.stdtr(finite, z))).sum()) - (1 - level) / 2

    low, high = math.log(float(sd.max())) - 25.0, math.log(float(sd.max())) + 10.0
    return 0.0 if excess(low) <= 0 else math.exp(root(excess, low, high, xtol=1e-6))


def _df_of_ratio(ratio: float) -> float:
    """Degrees of freedom of the t law whose 99 % interval is `ratio` times as wide as its 95 % interval."""

    def excess(log_df: float) -> float:
        df = math.exp(log_df)
        return float(special.stdtrit(df, (1 + _LEVELS[1]) / 2) / special.stdtrit(df, (1 + _LEVELS[0]) / 2)) - ratio

    low, high = math.log(0.5), math.log(_MOST_DF)
    if excess(high) >= 0:
        return _MOST_DF
    return 0.5 if excess(low) <= 0 else math.exp(root(excess, low, high, xtol=1e-6))
