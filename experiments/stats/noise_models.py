"""Standard errors of a mean or a trend where the noise may be correlated from step to step, without choosing how much it is.

They average over models of the noise, each weighted by how well it explains the series (Bayesian model averaging, Hoeting et al. 1999,
Statistical Science 14(4)). A model is white noise, or white noise plus an autoregression of order 1 with one of several correlation times
(the errors of Zellner & Tiao 1964, JASA 59). Likelihoods are those of the series' cosine transform, whose coefficients are nearly
independent (Whittle 1953; cosines as in Müller & Watson 2018, Econometrica 86(3)), with a flat prior on the logarithm of the noise's scale.

Prior weights and the longest correlation time are set by simulation: benchmarks/bench_coverage_steps.py says how often intervals hold the
truth. Pure functions on arrays, without random numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import fft, special

from experiments.stats.estimate import Array, t_value
from experiments.stats.root import root

MOST_POINTS = 500  # average longer series over blocks: their slow part is what matters

_WHITE = 0.75  # prior weight of white noise alone
_TIMES = 12  # correlation times, evenly spaced on the logarithmic scale
_SHORTEST, _LONGEST = 0.4, 0.7  # in points; as a part of the series
_AUTOREGRESSIVE = (3 / 13, 3 / 4, 1.0)  # part of the variance that is the autoregression's: 0.3 and 3 times the white part, all of it


@dataclass(frozen=True)
class Mixture:
    """The distribution of an estimate's error: t distributions with `df` degrees of freedom, by their standard errors and weights."""

    weight: Array
    errors: Array
    df: float

    def half_width(self, level: float) -> float:
        """Half the width of the two-sided interval with confidence `level`."""
        t, tail = t_value(level, self.df), (1 - level) / 2
        ends = t * float(self.errors.min()), t * float(self.errors.max())

        def beyond(value: float) -> float:
            return float((self.weight * special.stdtr(self.df, -value / self.errors)).sum()) - tail

        if beyond(ends[0]) <= 0:
            return ends[0]
        return ends[1] if beyond(ends[1]) >= 0 else root(beyond, *ends, rtol=1e-10)

    def t_alike(self, level: float) -> tuple[float, float]:
        """(standard error, degrees of freedom) of the t distribution with the same interval at `level` and at a fifth of its tail."""
        half, far = self.half_width(level), 1 - (1 - level) / 5
        ratio = self.half_width(far) / half

        def heavier(log: float) -> float:
            return t_value(far, math.exp(log)) / t_value(level, math.exp(log)) - ratio

        ends = 0.0, math.log(self.df)
        if heavier(ends[0]) <= 0 or heavier(ends[1]) >= 0:
            df = 1.0 if heavier(ends[0]) <= 0 else self.df
        else:
            df = math.exp(root(heavier, *ends, xtol=1e-6))
        return half / t_value(level, df), df


def error_of_mean(residuals: Array, parameters: int = 1) -> Mixture:
    """The error of the mean of a series of n values, from its `residuals` (n,); `parameters`: means taken from it, less than n."""
    n = residuals.size
    return _error(residuals, np.concatenate([[1 / math.sqrt(n)], np.zeros(n - 1)]), parameters)


def trend(series: Array) -> tuple[float, Mixture]:
    """(change of `series` (n,) from its first to its last value, by the straight line of least squares; the change's error). n > 3."""
    n = series.size
    centred = np.arange(n) - (n - 1) / 2
    weights = (n - 1) * centred / (centred @ centred)
    change = float(weights @ series)
    residuals = series - series.mean() - change / (n - 1) * centred
    return change, _error(residuals, fft.dct(weights, norm="ortho"), 2)


def _error(residuals: Array, contrast: Array, parameters: int) -> Mixture:
    """The error of a linear combination of the series, which weights its cosine coefficients by `contrast` (n,)."""
    n = residuals.size
    spectra, prior = _models(n)
    power = fft.dct(residuals, norm="ortho")[1:] ** 2
    df = n - parameters
    scale = (power / spectra[:, 1:]).sum(1)  # over df: the variance of a point, model by model
    log_weight = prior - np.log(spectra[:, 1:]).sum(1) / 2 - (n - 1) / 2 * np.log(scale)
    weight = np.exp(log_weight - log_weight.max())
    return Mixture(weight / weight.sum(), np.sqrt(scale / df * (spectra @ contrast**2)), df)


@lru_cache(maxsize=32)
def _models(n: int) -> tuple[Array, Array]:
    """Of each model of n points of variance 1: its cosine coefficients' variances (models, n), and the logarithm of its prior weight."""
    lag, frequency = np.arange(n), np.pi * np.arange(1, n) / n
    angle = np.outer(frequency, lag)
    # weight of lag k in the variance of the coefficient of frequency f: 4/n the sum over t of cos(f (t + 1/2)) cos(f (t + k + 1/2))
    of_lag = np.vstack([2 / n * (n - lag), 2 / n * ((n - lag) * np.cos(angle) - np.sin(angle) / np.sin(frequency)[:, None])])
    of_lag[:, 0] /= 2
    correlation = np.exp(-np.outer(lag, 1 / np.geomspace(_SHORTEST, _LONGEST * n, _TIMES)))
    slow = (of_lag @ correlation).T
    spectra = np.vstack([np.ones((1, n)), *(part * slow + 1 - part for part in _AUTOREGRESSIVE)])
    correlated = len(spectra) - 1
    return spectra, np.log([_WHITE, *[(1 - _WHITE) / correlated] * correlated])
