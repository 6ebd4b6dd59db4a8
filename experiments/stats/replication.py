"""Where a measurement of the same cell on another host of the kind will land: a prediction interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.stats.estimate import LEVEL, t_value
from experiments.stats.variances import VarianceLaw, sample_variances

LEAST_HOSTS = 3
LEAST_POOLED_DF = 4  # of all cells of the device: then two hosts of a cell are enough


@dataclass(frozen=True)
class Replication:
    """The range in which the mean of another host's trials lands with 95 % probability, in the metric's unit, and what it rests on."""

    low: float
    high: float
    hosts: int


def replication_interval(
    host_means: Sequence[float], law: VarianceLaw, pooled_df: float, *, logarithmic: bool = True, level: float = LEVEL
) -> Replication | None:
    """The prediction interval mean ± t sd sqrt(1 + 1/k) for one more host, from k hosts' means of a cell, in the metric's unit.

    `law`: of the variances between hosts, learned from cells among which this one is (`nested.host_law`); `sd` and the degrees of freedom
    are the cell's own variance moderated by it, or the law's of a cell that is not known, whichever gives the wider interval: a few hosts
    that agree do not show that the next is no slow one. `pooled_df`: the law's independent degrees of freedom. None with fewer than 3
    hosts, or 2 if `pooled_df` is 4 or more. The new host's mean is taken to be of as many trials as those that are known (Hahn & Meeker
    1991, section 4.7: one future mean). Raises ValueError on the logarithmic scale for a mean that is not above 0.
    """
    k = len(host_means)
    if k < (LEAST_HOSTS if pooled_df < LEAST_POOLED_DF else 2):
        return None
    if logarithmic and min(host_means) <= 0:
        raise ValueError("a mean of 0 or less has no logarithm")
    values = np.log(host_means) if logarithmic else np.asarray(host_means, dtype=float)
    spreads = law.spread_of(sample_variances([values.tolist()])[0]), law.spread()
    middle, half = float(values.mean()), max(t_value(level, spread.df) * spread.sd for spread in spreads) * math.sqrt(1 + 1 / k)
    low, high = middle - half, middle + half
    return Replication(math.exp(low), math.exp(min(high, 700.0)), k) if logarithmic else Replication(low, high, k)
