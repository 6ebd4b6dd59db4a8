"""The interval of one trial's rate over its steps. Pure functions on arrays.

Rates are compared on the logarithmic scale, so that a ratio and its inverse are treated alike. The standard error of a logarithm is close
to a relative error. Intervals are two-sided, with 95 % confidence unless `level` says otherwise.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from experiments.stats.estimate import LEVEL, Array, Estimate, finite_series, t_tail, t_value

_MOST_BLOCKS = 12


def throughput_interval(samples: ArrayLike, times: ArrayLike, *, level: float = LEVEL, draws: int = 2000, seed: int = 0) -> Estimate:
    """Samples/s = sum of `samples` (n,) / sum of `times` (n,) in s, with the interval of a circular block bootstrap.

    Steps are autocorrelated, so the bootstrap draws blocks of steps (Politis & Romano 1992). Their length is that of Politis & White (2004,
    corrected by Patton, Politis & White 2009), but at least n / 12. The automatic length is too short for short, correlated series; a few
    long blocks with the right degrees of freedom cover better (fixed-b, Kiefer & Vogelsang 2005; the tests check the coverage).
    Hesterberg's expansion widens the percentiles for few blocks (2015, The American Statistician 69(4), section 3.3).
    `draws`: bootstrap samples. A fixed `seed` gives the same interval for the same steps. With n < 4 the interval is unbounded.
    Raises ValueError if the lengths differ or are 0, a value is not finite, or a sum is not positive.
    """
    count, seconds = finite_series(samples), finite_series(times)
    if count.shape != seconds.shape:
        raise ValueError(f"{count.size} sample counts for {seconds.size} times")
    total = float(seconds.sum())
    if not total > 0 or not float(count.sum()) > 0:
        raise ValueError("samples and times must sum to more than 0")
    rate, n = float(count.sum()) / total, count.size
    if n < 4:  # too few to estimate a spread
        return Estimate(rate, 0.0, math.inf, math.inf, 1)
    length = max(block_length(count - rate * seconds), -(-n // _MOST_BLOCKS))
    blocks = -(-n // length)
    starts = np.random.default_rng(seed).integers(0, n, (draws, blocks), dtype=np.int32)
    rates = _circular_sums(count, length)[starts].sum(1) / _circular_sums(seconds, length)[starts].sum(1)
    df = max(1, n // length - 1)
    tail = t_tail(t_value(level, df) * math.sqrt((df + 1) / df), math.inf)
    low, high = np.quantile(rates, [tail, 1 - tail])
    se = float(np.log(rates).std()) * math.sqrt((df + 1) / df)
    return Estimate(rate, float(low), float(high), se, df)


def block_length(series: ArrayLike) -> int:
    """Steps per block for a circular block bootstrap of the mean of `series` (n,).

    Politis & White (2004), corrected by Patton, Politis & White (2009). Raises ValueError as `finite_series`.
    """
    x = finite_series(series)
    n = x.size
    x = x - x.mean()
    most = max(1, math.ceil(min(3 * math.sqrt(n), n / 3)))
    reach = min(n - 1, math.ceil(math.sqrt(n)) + max(5, math.ceil(math.log10(n))))
    spectrum = np.fft.rfft(x, 2 * n)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), 2 * n)[: reach + 1] / n
    if not covariance[0] > 1e-24:
        return 1
    run = max(5, math.ceil(math.sqrt(math.log10(n))))
    quiet = np.abs(covariance[1:] / covariance[0]) < 2 * math.sqrt(math.log10(n) / n)
    last = next((m for m in range(quiet.size - run + 1) if quiet[m : m + run].all()), None)
    if last is None:  # the correlation never becomes insignificant: take the last significant lag
        loud = np.flatnonzero(~quiet)
        last = int(loud[-1]) + 1 if loud.size else 0
    lags = np.arange(1, min(max(1, 2 * last), reach) + 1)
    window = np.clip(2 * (1 - lags / max(1, 2 * last)), 0, 1)  # flat-top window: 1 up to half, then linear to 0
    slope = 2 * float((window * lags * covariance[lags]).sum())
    level = float(covariance[0] + 2 * (window * covariance[lags]).sum())
    if level <= 0:
        return 1
    length = (2 * slope**2 / (4 / 3 * level**2)) ** (1 / 3) * n ** (1 / 3)
    return int(min(most, max(1, round(length))))


def _circular_sums(values: Array, length: int) -> Array:
    """For each start, the sum of `length` consecutive values (n,), wrapping around the end."""
    padded = np.concatenate([values, values[:length]])
    sums = np.concatenate([[0.0], np.cumsum(padded)])
    return np.asarray(sums[length : length + values.size] - sums[: values.size])
