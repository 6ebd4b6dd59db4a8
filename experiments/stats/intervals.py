"""Intervals of one cell's rate over its repeats; step_interval.py has those of one trial over its steps. Pure functions.

Rates are compared on the logarithmic scale, so that a ratio and its inverse are treated alike. The standard error of a logarithm is close
to a relative error. Intervals are two-sided, with 95 % confidence unless `level` says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from experiments.stats.estimate import LEVEL, Estimate, estimate_from_log


def pooled_spread(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """(standard deviation of the logarithm of repeats, its degrees of freedom), pooled over groups: ANOVA's within-group error.

    Each group holds the positive values of one cell's repeats. Two repeats alone say little about their spread (t with 1 degree of freedom
    is 12.7). The cells of one device together say enough, if their relative noise is alike. (0, 0) if no group has two repeats.
    """
    squares, df = 0.0, 0
    for group in groups:
        logs = np.log(np.asarray(group, dtype=float))
        if logs.size > 1:
            squares += float(((logs - logs.mean()) ** 2).sum())
            df += logs.size - 1
    return (math.sqrt(squares / df), df) if df else (0.0, 0)


def repeats_interval(estimates: Sequence[Estimate], *, spread: tuple[float, int] | None = None, level: float = LEVEL) -> Estimate:
    """One cell's rate from its repeats: the geometric mean with a t interval on the logarithmic scale.

    `spread` is `pooled_spread` of comparable cells; None: the spread of these repeats. The standard error is at least that of the steps
    within the trials. A single repeat keeps its own interval. Raises ValueError for no repeats.
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
