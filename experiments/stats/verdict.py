"""Same, faster, slower or undecided; and the false discovery rate over many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from experiments.stats.estimate import Estimate


class Verdict(StrEnum):
    """What a comparison says. `undecided` asks for more interleaved repeats."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    UNDECIDED = "undecided"


def verdict(ratio: Estimate, *, minimum: float, q_value: float | None = None, alpha: float = 0.05) -> Verdict:
    """Same, faster, slower or undecided, for `ratio` = new over old throughput, or, on the linear scale, new less old.

    faster / slower: it differs from 1 (p, or `q_value` where many are judged at once, below `alpha`), by at least `minimum` (0.02 = 2 %).
    same: the whole interval lies within `minimum` of 1. Everything else is undecided.
    Of a difference `minimum` is absolute, and 0 is no change.
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
    """q-values, in the order given: reject q < alpha and the expected share of false rejections stays under alpha (1995).

    Raises ValueError for a p-value outside 0 to 1.
    """
    from scipy.stats import false_discovery_control  # scipy.stats takes a second to import: only where verdicts are wanted

    return [float(q) for q in false_discovery_control(p_values)] if len(p_values) else []
