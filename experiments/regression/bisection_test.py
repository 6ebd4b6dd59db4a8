"""Deciding between two commits with as few trials as it takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from scipy import special

from experiments.regression.effect import RESOLUTION
from experiments.stats.estimate import Estimate

ALPHA = 0.05  # chance of a wrong turn in one decision


class Side(StrEnum):
    """On which side of a threshold a difference lies."""

    BELOW = "below"
    ABOVE = "above"
    OPEN = "open"


def looks(most: int) -> list[int]:
    """Numbers of pairs after which a decision is tried: 3, 5, 8, 12, ... and `most`."""
    found, step = [3], 2
    while found[-1] + step < most:
        found.append(found[-1] + step)
        step += 1
    return [look for look in found if look < most] + [most]


def difference(pairs: Sequence[float], level: float) -> Estimate:
    """Mean of paired log ratios as a ratio, with a t interval at `level`; three pairs at least. Raises ValueError for fewer than two."""
    values = np.asarray(pairs, dtype=float)
    if values.size < 2:
        raise ValueError("a difference needs two pairs")
    se = max(float(values.std(ddof=1)) / np.sqrt(values.size), RESOLUTION)
    df = values.size - 1
    middle, half = float(values.mean()), float(special.stdtrit(df, (1 + level) / 2)) * se
    return Estimate(float(np.exp(middle)), float(np.exp(middle - half)), float(np.exp(middle + half)), se, df, values.size)


def side_of(pairs: Sequence[float], threshold: float, tries: int) -> Side:
    """Whether the mean of paired log ratios lies below or above `threshold` (a logarithm), or more pairs are needed.

    The chance of a wrong answer is shared out over all the tries (Bonferroni), so stopping early costs nothing.
    """
    if len(pairs) < 2:
        return Side.OPEN
    found = difference(pairs, 1 - ALPHA / tries)
    if np.log(found.high) < threshold:
        return Side.BELOW
    return Side.ABOVE if np.log(found.low) > threshold else Side.OPEN
