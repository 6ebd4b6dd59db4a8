"""Intervals, steady state and verdicts: pure functions on arrays. Nothing here reads a clock or a file.

Rates are compared on the logarithm, so that a ratio and its inverse are judged alike. An `Estimate` keeps its standard error (of the
logarithm, so close to a relative error) and degrees of freedom, and its interval is the two-sided 95 % one unless another level is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array = NDArray[np.float64]
LEVEL = 0.95
_MOST_BLOCKS = 12


@dataclass(frozen=True)
class Estimate:
    """A positive quantity (samples/s, or a ratio) with its interval. `se` is the standard error of its logarithm, `n` the repeats."""

    value: float
    low: float
    high: float
    se: float
    df: float
    n: int = 1

    @property
    def relative(self) -> float:
        """Half the interval's width over the value: 0.012 is printed as ±1.2 %."""
        return (self.high - self.low) / (2 * self.value)

    @property
    def p_value(self) -> float:
        """Two-sided p that a ratio is 1."""
        if self.se == 0:
            return 1.0 if self.value == 1 else 0.0
        return 2 * _t_tail(abs(math.log(self.value)) / self.se, self.df)


class Verdict(StrEnum):
    """What a comparison says. `undecided` asks for more interleaved repeats."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Steady:
    """Where a series of step times settles. `start` is an index into the series, None where it never settles."""

    settled: bool
    start: int | None
    drift: float | None  # relative change between the halves of what was kept


def percentile(values: ArrayLike, q: float) -> float:
    """The q-th percentile (0..100), linear between order statistics. Raises ValueError for no values or q out of range."""
    array = _positive_length(values)
    return float(np.percentile(array, q))


def throughput_interval(samples: ArrayLike, times: ArrayLike, *, level: float = LEVEL, draws: int = 2000, seed: int = 0) -> Estimate:
    """Samples/s over steps with `samples` (n,) and `times` (n,) in s: sum over sum, with a circular block bootstrap interval.

    Steps are autocorrelated, so blocks are drawn (Politis & Romano 1992), of the length of Politis & White (2004, corrected by Patton,
    Politis & White 2009), and at least a twelfth of the series: the automatic length is too short for short, correlated series, and a
    few long blocks with the right degrees of freedom cover better (fixed-b, Kiefer & Vogelsang 2005; the tests check it). Percentiles
    are widened for few blocks by Hesterberg's expansion (2015, The American Statistician 69(4), section 3.3).
    Seeded: the same steps give the same interval. Raises ValueError for other than equal, positive lengths or times that sum to 0.
    """
    count, seconds = _positive_length(samples), _positive_length(times)
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
    tail = _t_tail(_t_value(level, df) * math.sqrt((df + 1) / df), math.inf)
    low, high = np.quantile(drawn, [tail, 1 - tail])
    se = float(np.log(drawn).std()) * math.sqrt((df + 1) / df)
    return Estimate(rate, float(low), float(high), se, df)


def block_length(series: ArrayLike) -> int:
    """Steps per block of a circular block bootstrap of the mean (Politis & White 2004; Patton, Politis & White 2009)."""
    x = _positive_length(series)
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
    return _from_log(float(logs.mean()), max(sd / math.sqrt(n), within), df, n, level)


def ratio_interval(
    cell: Sequence[Estimate],
    baseline: Sequence[Estimate],
    *,
    spread: tuple[float, int] | None = None,
    paired: bool = True,
    level: float = LEVEL,
) -> Estimate:
    """`cell` over `baseline`, each given by its repeats in order: > 1 is faster.

    From three interleaved repeats on, the i-th of each make a pair (what drifts over the sweep cancels): a paired t interval on the
    logarithm; not so with `paired` False, for repeats that were not interleaved. Fewer: the errors of both sides in quadrature, degrees
    of freedom by Welch (1947) and Satterthwaite (1946), or `spread`'s.
    """
    pairs = min(len(cell), len(baseline))
    within = math.hypot(_within(cell), _within(baseline))
    if paired and pairs >= 3 and len(cell) == len(baseline):
        logs = np.log([a.value / b.value for a, b in zip(cell, baseline, strict=True)])
        return _from_log(float(logs.mean()), max(float(logs.std(ddof=1)) / math.sqrt(pairs), within), pairs - 1, pairs, level)
    a, b = (repeats_interval(side, spread=spread, level=level) for side in (cell, baseline))
    if spread and spread[1] and min(len(cell), len(baseline)) >= 2:
        df: float = spread[1]
    else:
        weight = a.se**4 / a.df + b.se**4 / b.df
        df = (a.se**2 + b.se**2) ** 2 / weight if 0 < weight < math.inf else min(a.df, b.df)
    return _from_log(math.log(a.value / b.value), math.hypot(a.se, b.se), df, pairs, level)


def steady_state(times: ArrayLike, *, batch: int = 5, tolerance: float = 0.05, least: int = 8) -> Steady:
    """Where step times (n,) in s settle: MSER-5 (White 1997; White, Cobb & Spratt 2000), then a check that what is left is level.

    MSER cuts where the squared standard error of what is left is smallest, within the first half. We take medians of each five steps, not
    means, so that one slow step is not a transient, and accept a cut only if what it drops differs by 2 %. It never settles (`settled`
    False) if the halves of the rest still differ by more than `tolerance` and by more than three standard errors, or if there are fewer
    than `least` steps to tell from.
    """
    x = _positive_length(times)
    if x.size < least:
        return Steady(False, None, None)
    size = max(1, min(batch, x.size // least))
    medians = np.median(x[: x.size // size * size].reshape(-1, size), axis=1)
    n = medians.size
    errors = [float(medians[d:].var()) / (n - d) for d in range(n // 2 + 1)]
    cut = int(np.argmin(errors))
    kept = medians[cut:]
    if cut and abs(float(medians[:cut].mean()) / float(kept.mean()) - 1) < 0.02:
        cut, kept = 0, medians
    first, second = np.array_split(kept, 2)
    drift = float(second.mean() / first.mean() - 1)
    error = math.hypot(*(float(half.std(ddof=1)) / math.sqrt(half.size) for half in (first, second))) / float(first.mean())
    if abs(drift) > tolerance and abs(drift) > 3 * error:
        return Steady(False, None, drift)
    return Steady(True, cut * size, drift)


def verdict(ratio: Estimate, *, minimum: float, q_value: float | None = None, alpha: float = 0.05) -> Verdict:
    """Same, faster, slower or undecided, for `ratio` = new over old throughput.

    faster / slower: it differs from 1 (p, or `q_value` where many are judged at once, below `alpha`), by at least `minimum` (0.02 = 2 %).
    same: the whole interval lies within `minimum` of 1. Everything else is undecided.
    """
    if not minimum > 0:
        raise ValueError(f"the minimum effect must be more than 0, got {minimum}")
    effect, edge = math.log(ratio.value), math.log1p(minimum)
    if (ratio.p_value if q_value is None else q_value) < alpha and abs(effect) >= edge:
        return Verdict.FASTER if effect > 0 else Verdict.SLOWER
    if ratio.low > 0 and math.log(ratio.low) > -edge and math.log(ratio.high) < edge:
        return Verdict.SAME
    return Verdict.UNDECIDED


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """q-values, in the order given: reject q < alpha and the expected share of false rejections stays under alpha (1995)."""
    p = np.asarray(p_values, dtype=float)
    if p.size == 0:
        return []
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p-values lie between 0 and 1")
    order = np.argsort(p)[::-1]
    scaled = p[order] * p.size / np.arange(p.size, 0, -1)
    q = np.empty_like(p)
    q[order] = np.minimum(1, np.minimum.accumulate(scaled))
    return [float(value) for value in q]


def _from_log(log: float, se: float, df: float, n: int, level: float) -> Estimate:
    if not math.isfinite(se):
        return Estimate(math.exp(log), 0.0, math.inf, math.inf, 1, n)
    half = min(_t_value(level, df) * se, 300.0)
    return Estimate(math.exp(log), math.exp(log - half), math.exp(log + half), se, df, n)


def _within(estimates: Sequence[Estimate]) -> float:
    finite = [estimate.se for estimate in estimates if math.isfinite(estimate.se)]
    return math.sqrt(sum(se**2 for se in finite)) / len(estimates)


def _t_value(level: float, df: float) -> float:
    return float(special.ndtri((1 + level) / 2) if math.isinf(df) else special.stdtrit(df, (1 + level) / 2))


def _t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t, of the normal where df is infinite."""
    return float(special.ndtr(-t) if math.isinf(df) else special.stdtr(df, -t))


def _circular_sums(values: Array, length: int) -> Array:
    """Sum of `length` values from each start on, around the end."""
    padded = np.concatenate([values, values[:length]])
    sums = np.concatenate([[0.0], np.cumsum(padded)])
    return np.asarray(sums[length : length + values.size] - sums[: values.size])


def _positive_length(values: ArrayLike) -> Array:
    array: Array = np.asarray(values, dtype=float)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"wanted a series of numbers, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("the series holds values that are not finite")
    return array
