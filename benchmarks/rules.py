"""Other projects' regression rules, as their sources have them, for the comparison in bench_nightly.py. Pure.

Each takes the series of one cell: log values of the past nights' trials (nights, k) and tonight's (k,), where more is better, and gives
a score; the alarm is raised where the score is above `stock`, the rule's own threshold.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rule:
    """A rule with its own threshold; `score` works on arrays (..., nights, k) and (..., k)."""

    name: str
    stock: float

    def score(self, past: Array, now: Array) -> Array:
        raise NotImplementedError


class TorchBench(Rule):
    """|change of the median against the night before| > 7 % (pytorch/benchmark, userbenchmark's nightly comparison)."""

    def score(self, past: Array, now: Array) -> Array:
        before, after = np.median(np.exp(past[..., -1, :]), axis=-1), np.median(np.exp(now), axis=-1)
        return np.abs(before / after - 1)  # of the time


class Asv(Rule):
    """Different from the night before, and by a factor of at least 1.1 (airspeed-velocity/asv, `asv continuous`).

    Different: Mann-Whitney p < 0.002, where there are enough samples for that; else 99 % intervals of the medians do not overlap.
    """

    def score(self, past: Array, now: Array) -> Array:
        a, b = past[..., -1, :], now
        factor = np.exp(np.abs(np.median(a, axis=-1) - np.median(b, axis=-1)))
        return np.where(_asv_different(a, b), factor - 1, 0.0)


class ConbenchZ(Rule):
    """|z| > 5 of tonight's mean among the means of the last 100 (conbench, lookback z-score)."""

    def score(self, past: Array, now: Array) -> Array:
        means = np.exp(past[..., -100:, :]).mean(-1)
        return np.abs(np.exp(now).mean(-1) - means.mean(-1)) / means.std(-1, ddof=1)


class ConbenchPercent(Rule):
    """|change of the mean against the night before| > 5 % (conbench, pairwise)."""

    def score(self, past: Array, now: Array) -> Array:
        return np.abs(np.exp(now).mean(-1) / np.exp(past[..., -1, :]).mean(-1) - 1)


class Otava(Rule):
    """A change point at tonight, E-divisive with a t-test, p < 0.001 (Apache Otava 0.8; Fleming et al. 2023; Matteson & James 2014).

    On the last 50 nights, its default window. The score is 1 - p of a change point that it places at tonight or the night before, 0
    where it places none. The package itself pins another numpy, so this is its rule written again; it was checked against the package.
    """

    def score(self, past: Array, now: Array) -> Array:
        means = np.exp(np.concatenate([past[..., -49:, :].mean(-1), now.mean(-1)[..., None]], axis=-1))
        flat = means.reshape(-1, means.shape[-1])
        scores = np.array([self._one(series) for series in flat])
        return scores.reshape(means.shape[:-1])

    def _one(self, series: Array) -> float:
        """The smallest p at which tonight (or the night before) would be reported, as 1 - p."""
        for level in (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2):
            if any(index >= series.size - 2 for index in change_points(series, level)):
                return 1 - level
        return 0.0


def _asv_different(a: Array, b: Array) -> NDArray[np.bool_]:
    if 1 / comb(a.shape[-1] + b.shape[-1], b.shape[-1]) < 0.002:
        return np.asarray(stats.mannwhitneyu(a, b, axis=-1, method="exact").pvalue < 0.002)
    (low_a, high_a), (low_b, high_b) = laplace_interval(np.exp(-a)), laplace_interval(np.exp(-b))
    return np.asarray((high_a < low_b) | (high_b < low_a))


def laplace_interval(samples: Array, level: float = 0.99) -> tuple[Array, Array]:
    """asv's interval (low, high) of a location from few samples (..., n): that of the posterior under Laplace noise, at least their range.

    The posterior's density is proportional to the sum of distances to the power -n, which is piecewise a power of a line.
    """
    y = np.sort(samples, axis=-1)
    middle = np.median(y, axis=-1, keepdims=True)
    n = y.shape[-1]
    scale = np.abs(y - middle).sum(-1)
    y = np.where(scale[..., None] > 0, (y - middle) / np.maximum(scale, 1e-300)[..., None], np.arange(n) - (n - 1) / 2)
    nu = n - 1
    total = y.sum(-1)
    below, above = ((side * (total - n * y[..., place])) ** -nu / (nu * n) for side, place in ((1, 0), (-1, n - 1)))
    mass = below + above
    for k in range(1, n):
        slope, start = 2 * k - n, total - 2 * y[..., :k].sum(-1)
        left, right = y[..., k - 1], y[..., k]
        if slope == 0:
            mass = mass + (right - left) * start**-n
        else:
            mass = mass + ((slope * left + start) ** -nu - (slope * right + start) ** -nu) / (nu * slope)
    reach = (nu * n * (1 - level) / 2 * mass) ** (-1 / nu)  # of the sum of distances, where a tail has its half of the rest
    low, high = np.minimum((total - reach) / n, y[..., 0]), np.maximum((total + reach) / n, y[..., -1])
    low, high = (np.where(scale > 0, side, 0.0) for side in (low, high))  # samples that are all alike
    return middle[..., 0] + scale * low, middle[..., 0] + scale * high


def change_points(series: Array, max_pvalue: float, window: int = 50) -> list[int]:
    """Otava's compute_change_points: split in overlapping windows with ten times the level, then merge what is weaker than it."""
    first = max_pvalue * 10 if max_pvalue < 0.05 else min(2 * max_pvalue, 1.0)
    weak: set[int] = set()
    start = 0
    while start < series.size:
        here = [start + index for index in _split(series[start : start + window], first)]
        weak |= set(here)
        start = max(here[-1] if here else 0, start + window // 2)
    points = sorted(weak)
    p = [_p(series, points, index) for index in points]
    while points:
        worst = p.index(max(p))
        if p[worst] < max_pvalue:
            break
        del points[worst], p[worst]
        for place in (worst, worst + 1):  # the package renews these two; the point before keeps its old p
            if place < len(points):
                p[place] = _p(series, points, points[place])
    return points


def _split(series: Array, level: float) -> list[int]:
    points: list[int] = []
    while True:
        best = max(((*_candidate(series, a, b),) for a, b in _intervals(points, series.size) if b - a > 1), default=None)
        if best is None or _p(series, sorted([*points, best[1]]), best[1]) > level:
            return points
        points = sorted([*points, best[1]])


def _intervals(points: list[int], size: int) -> list[tuple[int, int]]:
    edges = [0, *points, size]
    return list(itertools.pairwise(edges))


def _p(series: Array, points: list[int], index: int) -> float:
    """Student's t-test of the stretches left and right of a change point, with the package's population standard deviations."""
    edges = [0, *points, series.size]
    place = edges.index(index)
    left, right = series[edges[place - 1] : index], series[index : edges[place + 1]]
    if left.size + right.size <= 2:
        return 1.0
    df = left.size + right.size - 2
    pooled = ((left.size - 1) * left.var() + (right.size - 1) * right.var()) / df
    gap, se = abs(float(left.mean() - right.mean())), np.sqrt(pooled * (1 / left.size + 1 / right.size))
    return float(2 * special.stdtr(df, -gap / se)) if se > 0 else float(gap == 0)


def _candidate(series: Array, start: int, end: int) -> tuple[float, int]:
    """(largest Q, its index) over all splits of a stretch and all ends of the right part (Matteson & James, equation 7)."""
    x = series[start:end]
    n = x.size
    distance = np.abs(x[:, None] - x[None, :])
    total = np.zeros((n + 1, n + 1))
    total[1:, 1:] = distance.cumsum(0).cumsum(1)
    tau = np.arange(1, n)[:, None]
    kappa = np.arange(2, n + 1)[None, :]
    left = total[tau, tau]
    cross = total[tau, kappa] - left
    right = total[kappa, kappa] - 2 * total[tau, kappa] + left
    m = kappa - tau
    with np.errstate(all="ignore"):
        within_left = np.where(tau > 1, left / 2 * 2 * m / kappa / (tau - 1), 0)
        within_right = np.where(m > 1, right / 2 * 2 * tau / kappa / (m - 1), 0)
        q = np.where(m > 0, 2 / kappa * cross - within_left - within_right, -np.inf)
    i, j = np.unravel_index(int(np.argmax(q)), q.shape)
    return float(q[i, j]), start + int(i) + 1


RULES: list[Rule] = [
    TorchBench("TorchBench 7 %", 0.07),
    Asv("asv", 0.1 - 1e-12),
    ConbenchZ("conbench z", 5.0),
    ConbenchPercent("conbench 5 %", 0.05),
    Otava("Otava", 1 - 1.001e-3),
]
