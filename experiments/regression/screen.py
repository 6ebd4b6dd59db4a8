"""The screen of a night: which cells look changed by their few trials, and are measured again in pairs. Pure, on arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.regression.effect import NightEffect

SHARE = 0.5  # of the smallest change that matters: 1.5 % where that is 3 %
WORSE, NOTHING, BETTER = -1, 0, 1


def looks_changed(effect: NightEffect, minimum: ArrayLike) -> NDArray[np.int8]:
    """WORSE, NOTHING or BETTER for each cell of a night, of the effects' shape (...).

    `minimum`: the smallest change that matters, 0.03 for 3 %; one number, or one for each cell. A cell looks changed where its effect, raw
    or relative to the canary, is at least SHARE of that: raw, since a canary that moved as well may hide a change of the code that both
    run; relative, since a faster node may hide one. The larger of the two says the direction. This is no test: it decides what is worth
    more trials, so it may err freely towards them. NOTHING where the effect is unknown (NaN).
    """
    edge = SHARE * np.log1p(np.asarray(minimum, dtype=float))
    raw, relative = np.nan_to_num(effect.raw), np.nan_to_num(effect.effect)
    larger = np.where(np.abs(raw) > np.abs(relative), raw, relative)
    known = np.isfinite(effect.effect)
    return np.asarray(np.where(known & (np.abs(larger) >= edge), np.sign(larger), NOTHING), dtype=np.int8)
