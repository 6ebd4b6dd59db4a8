"""The verdict of a comparison (same, faster, slower or undecided), and the false discovery rate over many comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from experiments.stats.estimate import LEVEL, Estimate
from experiments.stats.studentized_range import range_sf

# Half of what is promised (1 % of comparisons, 5 % of tables): with a few trials a side Satterthwaite's t has too light a tail where the
# spreads of both sides differ. benchmarks/bench_coverage.py counts what comes of it.
CHANCE = 0.005
DISCOVERY = 0.025


class Verdict(StrEnum):
    """The result of a comparison. `undecided` calls for more interleaved repeats."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Levels:
    """What a comparison is held to: the significance level of faster and slower, and the confidence of its interval. 0: nothing is said."""

    chance: float = CHANCE
    confidence: float = LEVEL

    def scaled(self, p_value: float) -> float:
        """A p-value beside those of comparisons that are held to CHANCE."""
        return min(1.0, p_value * CHANCE / self.chance) if self.chance > 0 else 1.0


ONE_LOOK = Levels()


def verdict(ratio: Estimate, *, minimum: float, q_value: float | None = None, chance: float = CHANCE) -> Verdict:
    """The verdict on `ratio` = new / old throughput, or on the difference new - old if it is linear.

    faster or slower: the ratio differs from 1 significantly (p-value below `chance` and, for many comparisons, `q_value` below DISCOVERY)
    and by at least `minimum` (0.02 = 2 %). same: the whole interval lies within `minimum` of 1. Otherwise undecided. For a difference no
    change is 0 and `minimum` has its unit. Raises ValueError unless `minimum` > 0.
    """
    if not minimum > 0:
        raise ValueError(f"the minimum effect must be more than 0, got {minimum}")
    if not chance > 0:
        return Verdict.UNDECIDED
    effect, edge = ratio.effect, minimum if ratio.linear else math.log1p(minimum)
    if ratio.p_value < chance and (q_value is None or q_value < DISCOVERY) and abs(effect) >= edge:
        return Verdict.FASTER if effect > 0 else Verdict.SLOWER
    if ratio.linear and -edge < ratio.low and ratio.high < edge:
        return Verdict.SAME
    if not ratio.linear and ratio.low > 0 and math.log(ratio.low) > -edge and math.log(ratio.high) < edge:
        return Verdict.SAME
    return Verdict.UNDECIDED


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """q-values of `p_values` (n,), in the same order (Benjamini & Hochberg 1995).

    If all hypotheses with q < alpha are rejected, the expected share of false rejections is below alpha. Raises ValueError for a p-value
    outside 0 to 1. As scipy.stats.false_discovery_control, which takes a second to import.
    """
    p = np.asarray(p_values, dtype=float)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p-values lie between 0 and 1")
    order = np.argsort(p)[::-1]  # the largest first: a q-value is the least of those from its rank upwards
    q = np.empty(p.size)
    q[order] = np.minimum.accumulate(p[order] * (p.size / np.arange(p.size, 0, -1)))
    return [float(value) for value in q.clip(0, 1)]


def among_many(ratio: Estimate, cells: int) -> float:
    """The p-value of `ratio` where its two cells were picked from `cells` for being apart: of the studentized range.

    Of every pair of equal cells, one is found apart at level alpha with probability alpha at most (Tukey 1953). With the standard error and
    the degrees of freedom of the pair it allows for unequal spreads (Games & Howell 1976, Journal of Educational Statistics 1(2)).
    """
    alone = ratio.p_value
    if cells < 3 or alone > CHANCE or not ratio.se > 0:
        return alone  # two cells are one pair; what is not decided alone is not among many
    return max(alone, range_sf(math.sqrt(2) * abs(ratio.effect) / ratio.se, cells, ratio.df))
