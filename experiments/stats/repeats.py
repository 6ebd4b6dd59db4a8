"""One cell's own value from its repeats. Nothing of the sweep's other cells enters it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.stats.estimate import LEVEL, Estimate, estimate_from_log, estimate_from_mean
from experiments.stats.spread import Spread, mean_error


def repeats_interval(estimates: Sequence[Estimate], *, known: Spread | None = None, level: float = LEVEL) -> Estimate:
    """One cell's value with a t interval: the geometric mean of its repeats, or the arithmetic one where they are linear.

    `known`: the spread between trials as past sweeps show it. Without it the spread is that of these repeats, and the interval of a single
    one is unbounded. The standard error is at least what the steps within the trials imply. Raises ValueError for no repeats.
    """
    if not estimates:
        raise ValueError("no repeats")
    linear = estimates[0].linear
    values = np.array([estimate.value for estimate in estimates])
    scaled = values if linear else np.log(values)
    se, df = mean_error(scaled, [estimate.se for estimate in estimates], known)
    make = estimate_from_mean if linear else estimate_from_log
    return make(float(scaled.mean()), se, df, len(estimates), level)


def ratio_interval(
    cell: Sequence[Estimate],
    baseline: Sequence[Estimate],
    *,
    known: tuple[Spread | None, Spread | None] = (None, None),
    level: float = LEVEL,
) -> Estimate:
    """`cell` / `baseline`, or `cell` - `baseline` where they are linear, of trials that did not run in rounds together.

    The squared errors of both sides add up, with degrees of freedom by Welch (1947) and Satterthwaite (1946). `known`: the spread between
    trials of either side's pool, used where that side has a single one. Raises ValueError if a side has no repeats.
    """
    sides = zip((cell, baseline), known, strict=True)
    a, b = (repeats_interval(side, known=spread if len(side) == 1 else None, level=level) for side, spread in sides)
    se = math.hypot(a.se, b.se)
    weight = a.se**4 / a.df + b.se**4 / b.df if math.isfinite(se) else 0.0
    df = se**4 / weight if weight > 0 else min(a.df, b.df)
    n = min(a.n, b.n)
    if a.linear:
        return estimate_from_mean(a.value - b.value, se, df, n, level)
    return estimate_from_log(math.log(a.value / b.value), se, df, n, level)


def paired_ratio(cell: Sequence[float], baseline: Sequence[float], *, level: float = LEVEL) -> Estimate:
    """The ratio `cell` / `baseline` of positive values (n,), the i-th of each measured together: a paired t interval of logarithms.

    Unbounded for a single pair. Raises ValueError for unequal numbers, or none.
    """
    logs = [math.log(one / other) for one, other in zip(cell, baseline, strict=True)]
    se, df = mean_error(logs, [math.inf] * len(logs))
    return estimate_from_log(math.fsum(logs) / len(logs), se, df, len(logs), level)
