"""The interval of a ratio of two cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.stats.estimate import LEVEL, Estimate, estimate_from_log
from experiments.stats.intervals import repeats_interval


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
        return estimate_from_log(float(logs.mean()), max(float(logs.std(ddof=1)) / math.sqrt(pairs), within), pairs - 1, pairs, level)
    a, b = (repeats_interval(side, spread=spread, level=level) for side in (cell, baseline))
    if spread and spread[1] and min(len(cell), len(baseline)) >= 2:
        df: float = spread[1]
    else:
        weight = a.se**4 / a.df + b.se**4 / b.df
        df = (a.se**2 + b.se**2) ** 2 / weight if 0 < weight < math.inf else min(a.df, b.df)
    return estimate_from_log(math.log(a.value / b.value), math.hypot(a.se, b.se), df, pairs, level)


def _within(estimates: Sequence[Estimate]) -> float:
    finite = [estimate.se for estimate in estimates if math.isfinite(estimate.se)]
    return math.sqrt(sum(se**2 for se in finite)) / len(estimates)
