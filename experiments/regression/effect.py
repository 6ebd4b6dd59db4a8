"""Tonight against a baseline of nights: how much a cell changed, relative to its node, and how certain that is. Pure, on arrays.

All values are logarithms of a positive quantity of which more is better. The last axis is a night's repeats (k; NaN for a missing one), the
one before it the baseline's nights (n), oldest first; each entry of the axes before these (...) is a case of its own.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array = NDArray[np.float64]

RESOLUTION = 5e-4  # smallest standard error of a night, as a logarithm (0.05 %): what clocks, rounding and code layout may do
PRIOR_NIGHTS = 2.0  # weight, in nights, of the assumption that a node affects cell and canary alike
_WINSOR = 2.5  # robust standard deviations at which a night's value is clipped before a spread is taken
_MAD = 1.4826  # makes a median absolute deviation a standard deviation, for normal noise


@dataclass(frozen=True)
class NightEffect:
    """Tonight over the baseline, as a logarithm (0.05 is about 5 % better), with its standard error and degrees of freedom.

    `share`: how much of the canary's change was subtracted, 0 none to 1 all. `raw`: the effect with nothing subtracted. `between`: standard
    deviation from night to night, `within`: of a single repeat, both of the logarithm. All arrays have the shape (...).
    """

    effect: Array
    se: Array
    df: Array
    raw: Array
    share: Array
    between: Array
    within: Array

    @property
    def p_value(self) -> Array:
        """Two-sided p-value of no change, by Student's t; NaN where the effect is unknown."""
        return np.asarray(2 * special.stdtr(self.df, -np.abs(self.effect) / self.se))

    def detectable(self, repeats: float, *, alpha: float, power: float = 0.95, minimum: float = 0.0) -> Array:
        """The smallest effect, as a logarithm, that a night of so many repeats finds with probability `power`; shape (...).

        Found means significant at `alpha` (two-sided), and estimated as at least `minimum` (a logarithm).
        """
        se = np.hypot(self.between, self.within * np.sqrt(_trim_cost(np.asarray(repeats)) / repeats))
        reach = special.stdtrit(self.df, power)
        return np.asarray(np.maximum(special.stdtrit(self.df, 1 - alpha / 2) * se, minimum) + reach * se)


def night_value(repeats: ArrayLike) -> Array:
    """One value for each night, (..., k) -> (...): the mean of its repeats without the lowest and the highest quarter.

    From three repeats on, at least one is left out at each end. NaN for a night without a repeat.
    """
    values = np.sort(np.asarray(repeats, dtype=float), axis=-1)  # NaN last
    count = np.sum(np.isfinite(values), axis=-1, keepdims=True)
    cut = _cut(count)
    place = np.arange(values.shape[-1])
    kept = (place >= cut) & (place < count - cut)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(kept, values, 0).sum(-1) / kept.sum(-1))


def night_error(nights: ArrayLike) -> tuple[Array, Array]:
    """(standard error of each night's `night_value` (..., n), its degrees of freedom (...)), of the repeats (..., n, k) of nights that vary
    alike: as a logarithm, and from the repeats within nights alone. Not finite where no night has two repeats.

    One rough night does not widen all of them: the variance is a median over nights, which knows it half as well as their mean would.
    """
    y = np.asarray(nights, dtype=float)
    counts = np.sum(np.isfinite(y), axis=-1)
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # no night has two repeats
        variance = _usual_variance(y, counts)
        error = np.sqrt(variance[..., None] * np.where(counts > 0, _trim_cost(counts) / counts, np.nan))
    return error, np.maximum((counts - 1).clip(0).sum(-1) / 2, 1.0)


def night_effect(
    baseline: ArrayLike, tonight: ArrayLike, canary_baseline: ArrayLike | None = None, canary_tonight: ArrayLike | None = None
) -> NightEffect:
    """The effect of tonight's repeats (..., k) against the baseline's nights (..., n, k).

    With a canary of the same nodes (same shapes; repeat i of both ran in the same round), what both share is subtracted from both sides: as
    much of it as the baseline shows (regression on a control variate, so a canary does not cost precision; Deng, Xu, Kohavi & Walker
    2013), and all of it where the canary itself moved far beyond its noise tonight (positive-part shrinkage after James & Stein 1961).

    The standard error is that of a prediction: the variation from night to night, the error of the baseline's own location, and what
    tonight's repeats leave. It needs two nights and one repeat; with less, the effect is NaN. Raises ValueError for shapes that do not fit.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a night or a canary that is not there is NaN, and stays so
        return _night_effect(baseline, tonight, canary_baseline, canary_tonight)


def canary_deviation(canary: ArrayLike) -> Array:
    """How far a canary's night values (..., n) lie from their level, of the same shape; 0 for a night without a canary."""
    values = np.asarray(canary, dtype=float)
    return np.nan_to_num(values - _location(values)[..., None])


def relative_to_canary(cell: Array, canary: Array) -> Array:
    """A cell's night values (..., n) without what they share with the canary's, of the same shape; a night without a canary stays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(cell - _slope(canary, cell)[..., None] * canary_deviation(canary))


def _night_effect(
    baseline: ArrayLike, tonight: ArrayLike, canary_baseline: ArrayLike | None, canary_tonight: ArrayLike | None
) -> NightEffect:
    y, t = np.asarray(baseline, dtype=float), np.asarray(tonight, dtype=float)
    if y.ndim != t.ndim + 1 or y.shape[:-2] != t.shape[:-1]:
        raise ValueError(f"a baseline of shape {y.shape} does not fit a night of shape {t.shape}")
    plain = _predict(y, t)
    zero = np.zeros_like(plain.effect)
    if canary_baseline is None or canary_tonight is None:
        return NightEffect(plain.effect, plain.se, plain.df, plain.effect, zero, plain.between, plain.within)
    x, u = _aligned(np.asarray(canary_baseline, dtype=float), y), _aligned(np.asarray(canary_tonight, dtype=float), t)
    node = _predict(x, u)
    slope = _slope(night_value(x), night_value(y))
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.clip(1 - (2 * node.se / node.effect) ** 2, 0, 1)
    share = np.fmax(slope, np.where(np.isfinite(moved), moved, 0))
    known = np.isfinite(node.effect)
    at, now = np.where(known, slope, 0), np.where(known, share, 0)
    level = np.nan_to_num(_location(night_value(x)))
    free = y - at[..., None, None] * _deviation(x, level[..., None, None])
    seen = _predict(free, t - now[..., None] * _deviation(u, level[..., None]))
    se = np.hypot(seen.se, np.where(known, (now - at) * np.nan_to_num(node.se), 0))
    return NightEffect(seen.effect, se, seen.df, plain.effect, now, seen.between, seen.within)


def _predict(y: Array, t: Array) -> NightEffect:
    """Tonight (..., k) against the nights (..., n, k), with nothing subtracted."""
    values = night_value(y)
    there = np.isfinite(values)
    nights = there.sum(-1)
    middle = _location(values)
    counts = np.sum(np.isfinite(y), axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = np.where(there, _trim_cost(counts) / np.maximum(counts, 1), np.nan)
        within = _within(y, t)
        spread = _spread(values, middle)
        usual = np.nanmean(np.where(there, cost, np.nan), axis=-1) if values.size else np.full(middle.shape, np.nan)
        between = np.sqrt(np.maximum(spread**2 - within**2 * usual, 0))
        now = np.sum(np.isfinite(t), axis=-1)
        mine = within**2 * _trim_cost(now) / now
        level = np.fmax(spread, RESOLUTION) ** 2 * _trim_cost(nights) / nights
        se = np.sqrt(between**2 + mine + level)
    enough = (nights >= 2) & (now >= 1)
    effect = np.where(enough, night_value(t) - middle, np.nan)
    se = np.where(enough, np.fmax(se, RESOLUTION), np.nan)
    df = np.maximum(nights - 1, 1).astype(float)
    return NightEffect(effect, se, df, effect, np.zeros_like(effect), np.fmax(between, RESOLUTION), within)


def _location(values: Array) -> Array:
    """The baseline's level (..., n) -> (...): mean without the lowest and the highest quarter."""
    return night_value(values)


def _spread(values: Array, middle: Array) -> Array:
    """Standard deviation (...) of values (..., n) from night to night, winsorised: one bad night counts, but not in full."""
    rest = values - middle[..., None]
    count = np.sum(np.isfinite(rest), axis=-1)
    with np.errstate(all="ignore"):
        robust = _MAD * np.nanmedian(np.abs(rest), axis=-1) * (1 + 1 / np.maximum(count, 1))
        plain = np.sqrt(np.nansum(rest**2, axis=-1) / np.maximum(count - 1, 1))
        edge = (_WINSOR * np.maximum(robust, plain / 2))[..., None]
        return np.asarray(np.sqrt(np.nansum(np.clip(rest, -edge, edge) ** 2, axis=-1) / np.maximum(count - 1, 1)))


def _within(y: Array, t: Array) -> Array:
    """Standard deviation (...) of one repeat: the median over the nights, and more if tonight varies more than that."""
    counts = np.sum(np.isfinite(y), axis=-1)
    usual = _usual_variance(y, counts)
    mine = np.sum(np.isfinite(t), axis=-1)
    here = np.where(mine > 2, _robust_variance(t), np.nan)
    usual = np.where(np.isfinite(usual), usual, np.where(np.isfinite(here), here, 0))
    return np.asarray(np.sqrt(np.fmax(usual, (usual + np.where(np.isfinite(here), here, usual)) / 2)))


def _usual_variance(y: Array, counts: Array) -> Array:
    """Variance (...) of one repeat, of nights (..., n, k) with so many repeats (..., n): the median over nights; NaN without any."""
    return np.asarray(np.nanmedian(np.where(counts > 1, _variance(y) / _median_of_chi2(counts - 1), np.nan), axis=-1))


def _variance(values: Array) -> Array:
    count = np.sum(np.isfinite(values), axis=-1)
    mean = np.nansum(values, axis=-1) / np.maximum(count, 1)
    return np.asarray(np.nansum((values - mean[..., None]) ** 2, axis=-1) / np.maximum(count - 1, 1))


def _robust_variance(values: Array) -> Array:
    """Variance of tonight's repeats around their middle, winsorised: one slow trial says little about the others."""
    return np.asarray(_spread(values, night_value(values)) ** 2)


def _median_of_chi2(df: Array) -> Array:
    """Median of chi-square over its degrees of freedom (Wilson & Hilferty 1931)."""
    safe = np.maximum(df, 1)
    return np.asarray((1 - 2 / (9 * safe)) ** 3)


def _slope(x: Array, y: Array) -> Array:
    """How much of the canary's deviation (..., n) the cell's shares, 0 to 1: ridge regression towards 1 (Hoerl & Kennard 1970)."""
    with np.errstate(all="ignore"):
        dx, dy = (_clipped(values - np.nanmedian(values, axis=-1)[..., None]) for values in (x, y))
        both = np.isfinite(dx) & np.isfinite(dy)
        dx, dy = np.where(both, dx, 0), np.where(both, dy, 0)
        count = np.maximum(both.sum(-1), 1)
        prior = PRIOR_NIGHTS * np.maximum((dx**2).sum(-1) / count, RESOLUTION**2)
        return np.asarray(np.clip(((dx * dy).sum(-1) + prior) / ((dx**2).sum(-1) + prior), 0, 1))


def _clipped(rest: Array) -> Array:
    edge = 3 * np.maximum(_MAD * np.nanmedian(np.abs(rest), axis=-1), RESOLUTION)[..., None]
    return np.asarray(np.clip(rest, -edge, edge))


def _aligned(values: Array, like: Array) -> Array:
    """The canary's repeats in the shape of the cell's: a round without one takes that night's value."""
    if values.shape[:-1] != like.shape[:-1]:
        raise ValueError(f"a canary of shape {values.shape} does not fit cells of shape {like.shape}")
    whole = night_value(values)[..., None]
    width = like.shape[-1]
    padded = np.full(like.shape, np.nan)
    padded[..., : min(width, values.shape[-1])] = values[..., :width]
    return np.where(np.isfinite(padded), padded, whole)


def _deviation(values: Array, level: Array) -> Array:
    """From the canary's level; 0 for a night without a canary."""
    return np.nan_to_num(values - level)


def _cut(count: Array) -> Array:
    return np.where(count >= 3, np.maximum(1, count // 4), 0)


def _trim_cost(count: NDArray[np.int_] | Array) -> Array:
    """Variance of `night_value` over that of a mean, for normal noise: 1.35 for the median of three, about 1.19 for more."""
    return np.asarray(np.select([count >= 4, count >= 3], [1.19, 1.35], 1.0))
