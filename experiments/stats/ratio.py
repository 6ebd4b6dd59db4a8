"""The interval of the ratio of two cells' rates."""

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
    """The ratio `cell` / `baseline` of rates, each given by its repeats in order. Above 1, `cell` is faster.

    With equally many interleaved repeats, at least three, the i-th of each form a pair, in which drift over the sweep cancels: a paired t
    interval on the logarithmic scale. `paired` False is for repeats that were not interleaved. Otherwise the squared errors of both sides
    add up, with degrees of freedom by Welch (1947) and Satterthwaite (1946), or those of `spread` (see `repeats_interval`).
    Raises ValueError if a side has no repeats.
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
    """Standard error of the mean logarithm that the steps within the trials imply."""
    finite = [estimate.se for estimate in estimates if math.isfinite(estimate.se)]
    return math.sqrt(sum(se**2 for se in finite)) / len(estimates)
