"""The screen of a night: which cells look changed by their few trials, and are measured again in pairs. Pure, on arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.regression.effect import NightEffect

SHARE = 0.5  # of the smallest change that matters: 1.5 % where that is 3 %
MOVED = 0.75  # share of the canary's change that is subtracted where it moved by four of its standard errors
WORSE, NOTHING, BETTER, UNSURE = -1, 0, 1, 2


def looks_changed(effect: NightEffect, minimum: ArrayLike) -> NDArray[np.int8]:
    """WORSE, BETTER, UNSURE or NOTHING for each cell of a night, of the effects' shape (...).

    `minimum`: the smallest change that matters, 0.03 for 3 %; one number, or one for each cell. A cell looks changed where its effect, raw
    or relative to the canary, is at least SHARE of that: raw, since a canary that moved as well may hide a change of the code that both
    run; relative, since a faster node may hide one. UNSURE, which is worth pairs as well: where the two point to different sides, or where
    the canary clearly moved and they differ by as much, since a cell that its node affects by more than its canary may hide a change from
    both. This is no test: it decides what is worth more trials, so it may err freely towards them. NOTHING where the effect is unknown
    (NaN).
    """
    edge = SHARE * np.log1p(np.asarray(minimum, dtype=float))
    raw, relative = np.nan_to_num(effect.raw), np.nan_to_num(effect.effect)
    worse, better = np.minimum(raw, relative) <= -edge, np.maximum(raw, relative) >= edge
    apart = (np.abs(raw - relative) >= edge) & (effect.share >= MOVED)
    agree = (np.abs(raw) >= edge) & (np.abs(relative) >= edge)
    seen = np.select([(apart & ~agree) | (worse & better), worse, better], [UNSURE, WORSE, BETTER], NOTHING)
    return np.where(np.isfinite(effect.effect), seen, NOTHING).astype(np.int8)
