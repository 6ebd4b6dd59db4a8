"""Intervals, steady state and verdicts: pure functions on arrays. Nothing here reads a clock or a file.

Rates are compared on the logarithm, so that a ratio and its inverse are judged alike. An `Estimate` keeps its standard error (of the
logarithm, so close to a relative error) and degrees of freedom, and its interval is the two-sided 95 % one unless another level is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from experiments.stats.estimate import LEVEL, Array, Estimate, estimate_from_log, positive_series, t_tail, t_value

_MOST_BLOCKS = 12


def throughput_interval(samples: ArrayLike, times: ArrayLike, *, level: float = LEVEL, draws: int = 2000, seed: int = 0) -> Estimate:
    """Samples/s over steps with `samples` (n,) and `times` (n,) in s: sum over sum, with a circular block bootstrap interval.

    Steps are autocorrelated, so blocks are drawn (Politis & Romano 1992), of the length of Politis & White (2004, corrected by Patton,
    Politis & White 2009), and at least a twelfth of the series: the automatic length is too short for short, correlated series, and a
    few long blocks with the right degrees of freedom cover better (fixed-b, Kiefer & Vogelsang 2005; the tests check it). Percentiles
    are widened for few blocks by Hesterberg's expansion (2015, The American Statistician 69(4), section 3.3).
    Seeded: the same steps give the same interval. Raises ValueError for other than equal, positive lengths or times that sum to 0.
    """
    count, seconds = positive_series(samples), positive_series(times)
    if count.shape != seconds.shape:
        raise ValueError(f"{count.size} sample counts for {seconds.size} times")
    total = float(seconds.sum())
    if not total > 0 or not float(count.sum()) > 0:
        raise ValueError("samples and times must sum to more than 0")
    rate, n = float(count.sum()) / total, count.size
    if n < 4:  # no spread can be read from so few
        return Estimate(rate, 0.0, math.inf, math.inf, 1)
    length = max(block_length(count - rate * seconds), -(-n // _MOST_BLOCKS))
    blocks = -(-n // length)
    starts = np.random.default_rng(seed).integers(0, n, (draws, blocks), dtype=np.int32)
    drawn = _circular_sums(count, length)[starts].sum(1) / _circular_sums(seconds, length)[starts].sum(1)
    df = max(1, n // length - 1)
    tail = t_tail(t_value(level, df) * math.sqrt((df + 1) / df), math.inf)
    low, high = np.quantile(drawn, [tail, 1 - tail])
    se = float(np.log(drawn).std()) * math.sqrt((df + 1) / df)
    return Estimate(rate, float(low), float(high), se, df)


def block_length(series: ArrayLike) -> int:
    """Steps per block of a circular block bootstrap of the mean (Politis & White 2004; Patton, Politis & White 2009)."""
    x = positive_series(series)
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
    if last is None:  # never quiet within reach: the last lag that is not
        loud = np.flatnonzero(~quiet)
        last = int(loud[-1]) + 1 if loud.size else 0
    lags = np.arange(1, min(max(1, 2 * last), reach) + 1)
    window = np.clip(2 * (1 - lags / max(1, 2 * last)), 0, 1)  # flat top: 1 up to half, then linear to 0
    slope = 2 * float((window * lags * covariance[lags]).sum())
    level = float(covariance[0] + 2 * (window * covariance[lags]).sum())
    if level <= 0:
        return 1
    length = (2 * slope**2 / (4 / 3 * level**2)) ** (1 / 3) * n ** (1 / 3)
    return int(min(most, max(1, round(length))))


def pooled_spread(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """Standard deviation of the logarithm of repeats, and its degrees of freedom, over groups of repeats: ANOVA's within-group error.

    Two repeats say little about their own spread (t with 1 degree of freedom: 12.7); the cells of one device together say enough, under the
    assumption that their relative noise is alike. (0, 0) where no group has two.
    """
    squares, df = 0.0, 0
    for group in groups:
        logs = np.log(np.asarray(group, dtype=float))
        if logs.size > 1:
            squares += float(((logs - logs.mean()) ** 2).sum())
            df += logs.size - 1
    return (math.sqrt(squares / df), df) if df else (0.0, 0)


def repeats_interval(estimates: Sequence[Estimate], *, spread: tuple[float, int] | None = None, level: float = LEVEL) -> Estimate:
    """One cell from its repeats: geometric mean with a t interval on the logarithm; repeats dominate from two on.

    `spread` is `pooled_spread` of comparable cells; without it the repeats' own. The error is never taken as smaller than what the steps
    within the trials already show. One repeat gives back its own interval. Raises ValueError for none.
    """
    if not estimates:
        raise ValueError("no repeats")
    if len(estimates) == 1:
        return estimates[0]
    n = len(estimates)
    logs = np.log([estimate.value for estimate in estimates])
    sd, df = spread if spread and spread[1] else (float(logs.std(ddof=1)), n - 1)
    within = math.sqrt(sum(estimate.se**2 for estimate in estimates if math.isfinite(estimate.se))) / n
    return estimate_from_log(float(logs.mean()), max(sd / math.sqrt(n), within), df, n, level)


def _circular_sums(values: Array, length: int) -> Array:
    """Sum of `length` values from each start on, around the end."""
    padded = np.concatenate([values, values[:length]])
    sums = np.concatenate([[0.0], np.cumsum(padded)])
    return np.asarray(sums[length : length + values.size] - sums[: values.size])
