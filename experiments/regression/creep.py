"""Creep: a change too small for any night, which adds up over a segment. Pure, on arrays.

A trend over the segment's nights says which cells are suspected. Where code may be the cause, pairs of tonight's commit against the first
good one of the segment decide (`judge_pairs`); where it cannot, the trend itself does, with the power that `Trend.detectable` states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from experiments.regression.decision import ALPHA
from experiments.regression.effect import RESOLUTION, relative_to_canary
from experiments.regression.screen import SHARE

Array = NDArray[np.float64]

LEAST_NIGHTS = 10  # a line through fewer says little
EVERY = 5  # nights between two sets of pairs against the same first commit
_SUSPICION = 0.05  # one-sided level; pairs confirm it
_PERSISTENCE = 0.9  # most that neighbouring nights are taken to share


@dataclass(frozen=True)
class Trend:
    """What a line through a segment's nights says a cell changed from its first night to tonight, as a logarithm; below 0 is worse.

    `se`: its standard error, with what neighbouring nights share (AR(1)) allowed for; `df`. All of shape (...); NaN with fewer nights than
    LEAST_NIGHTS.
    """

    change: Array
    se: Array
    df: Array

    def suspected(self, minimum: ArrayLike) -> NDArray[np.bool_]:
        """Where the cell looks worse by SHARE of what matters, at a one-sided level of 5 %: worth pairs against the first good commit."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.change <= -SHARE * np.log1p(minimum)) & (special.stdtr(self.df, self.change / self.se) < _SUSPICION))

    def shown(self, minimum: ArrayLike, alpha: float = ALPHA) -> NDArray[np.bool_]:
        """Where the trend alone shows it: worse by all that matters (`minimum`), at a two-sided level of `alpha`."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.change <= -np.log1p(minimum)) & (2 * special.stdtr(self.df, self.change / self.se) < alpha))

    def detectable(self, minimum: ArrayLike, alpha: float = ALPHA, power: float = 0.95) -> Array:
        """The smallest loss over the segment, as a positive logarithm, that `shown` finds with probability `power`."""
        reach = special.stdtrit(self.df, power) * self.se
        return np.asarray(np.maximum(special.stdtrit(self.df, 1 - alpha / 2) * self.se, np.log1p(minimum)) + reach)


def trend(nights: ArrayLike, canary: ArrayLike | None = None) -> Trend:
    """The line (least squares) through the values of a segment's nights (..., n), oldest first, tonight last, more is better; NaN: missing.

    With a canary of the same shape, what both share is subtracted first, as in `night_effect`. The variance of the line's rise is inflated
    by (1 + r) / (1 - r) for the lag-1 correlation r of what is left (Bartlett 1935, JRSS 98(3)).
    """
    y = np.asarray(nights, dtype=float)
    if canary is not None:
        y = relative_to_canary(y, np.asarray(canary, dtype=float))
    there = np.isfinite(y)
    n = there.sum(-1)
    time = np.broadcast_to(np.arange(y.shape[-1], dtype=float), y.shape)
    with np.errstate(all="ignore"):
        centred = np.where(there, time - (time * there).sum(-1, keepdims=True) / n[..., None], 0.0)
        values = np.where(there, y - np.nansum(y, axis=-1, keepdims=True) / n[..., None], 0.0)
        spread = (centred**2).sum(-1)
        slope = (centred * values).sum(-1) / spread
        rest = np.where(there, values - slope[..., None] * centred, 0.0)
        both = there[..., 1:] & there[..., :-1]
        shared = (rest[..., 1:] * rest[..., :-1] * both).sum(-1) / (rest**2).sum(-1)
        r = np.clip(
            (shared + 2 / n) / (1 - 4 / n), 0, _PERSISTENCE
        )  # less its bias after a fitted line (Shaman & Stine 1988, JASA 83(403))
        se = np.sqrt((rest**2).sum(-1) / (n - 2) / spread * (1 + r) / (1 - r))
    length = float(y.shape[-1] - 1)
    enough = n >= LEAST_NIGHTS
    change = np.where(enough, slope * length, np.nan)
    return Trend(change, np.where(enough, np.fmax(se * length, RESOLUTION), np.nan), np.maximum(n - 2, 1).astype(float))
