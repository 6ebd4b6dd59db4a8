"""The verdict of a comparison (same, faster, slower or undecided), and the false discovery rate over many comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from experiments.stats.estimate import Estimate


class Verdict(StrEnum):
    """The result of a comparison. `undecided` calls for more interleaved repeats."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    UNDECIDED = "undecided"


def verdict(ratio: Estimate, *, minimum: float, q_value: float | None = None, alpha: float = 0.05) -> Verdict:
    """The verdict on `ratio` = new / old throughput, or on the difference new - old if it is linear.

    faster or slower: the ratio differs from 1 significantly (p-value, or `q_value` for many comparisons, below `alpha`) and by at least
    `minimum` (0.02 = 2 %). same: the whole interval lies within `minimum` of 1. Otherwise undecided. For a difference no change is 0 and
    `minimum` has its unit. Raises ValueError unless `minimum` > 0.
    """
    if not minimum > 0:
        raise ValueError(f"the minimum effect must be more than 0, got {minimum}")
    effect, edge = ratio.effect, minimum if ratio.linear else math.log1p(minimum)
    if (ratio.p_value if q_value is None else q_value) < alpha and abs(effect) >= edge:
        return Verdict.FASTER if effect > 0 else Verdict.SLOWER
    if ratio.linear and -edge < ratio.low and ratio.high < edge:
        return Verdict.SAME
    if not ratio.linear and ratio.low > 0 and math.log(ratio.low) > -edge and math.log(ratio.high) < edge:
        return Verdict.SAME
    return Verdict.UNDECIDED


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """q-values of `p_values` (n,), in the same order (Benjamini & Hochberg 1995).

    If all hypotheses with q < alpha are rejected, the expected share of false rejections is below alpha. Raises ValueError for a p-value
    outside 0 to 1.
    """
    from scipy.stats import false_discovery_control  # scipy.stats takes a second to import: only where verdicts are made

    return [float(q) for q in false_discovery_control(p_values)] if len(p_values) else []
