"""The sequential test of a bisection: which side of a threshold a commit lies on, with as few pairs of trials as it takes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from experiments.regression.effect import RESOLUTION
from experiments.stats.estimate import Estimate, estimate_from_log

ALPHA = 0.05  # chance of a wrong turn at one commit


class Side(StrEnum):
    """On which side of a threshold a difference lies."""

    BELOW = "below"
    ABOVE = "above"
    OPEN = "open"


def interim_pairs(most: int) -> list[int]:
    """Numbers of pairs after which an interim analysis is made: 3, 5, 8, 12, ... and `most`, which is the last."""
    counts, step = [3], 2
    while counts[-1] + step < most:
        counts.append(counts[-1] + step)
        step += 1
    return [count for count in counts if count < most] + [most]


def difference(pairs: Sequence[float], level: float) -> Estimate:
    """Mean of paired log ratios as a ratio, with Student's t interval at `level`, such as 0.95. Raises ValueError for fewer than two pairs.

    The standard error is at least the resolution of a night, so that identical pairs do not give an interval of width 0.
    """
    values = np.asarray(pairs, dtype=float)
    if values.size < 2:
        raise ValueError("a difference needs two pairs")
    se = max(float(values.std(ddof=1)) / math.sqrt(values.size), RESOLUTION)
    return estimate_from_log(float(values.mean()), se, values.size - 1, values.size, level)


def side_of(pairs: Sequence[float], threshold: float, analyses: int) -> Side:
    """Whether the mean of paired log ratios lies below or above `threshold` (a log ratio), or more pairs are needed.

    All interim analyses share the chance of a wrong answer (Bonferroni), so a decision may be taken at any of them. Fewer than two pairs
    decide nothing.
    """
    if len(pairs) < 2:
        return Side.OPEN
    interval = difference(pairs, 1 - ALPHA / analyses)
    if np.log(interval.high) < threshold:
        return Side.BELOW
    return Side.ABOVE if np.log(interval.low) > threshold else Side.OPEN
