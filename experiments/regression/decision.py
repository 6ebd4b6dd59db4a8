"""A night's verdicts: many cells at once, looked at again as repeats come in. Pure, on arrays.

Two gates stand before `slower` and `faster`: each cell's own chance of a false alarm (`alpha` a night, spent over the looks), and the
false discovery rate over all cells of the night (`fdr`). And the change must be as large as what matters for the cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from experiments.regression.effect import NightEffect
from experiments.stats.estimate import Estimate
from experiments.stats.verdict import Verdict

ALPHA = 0.01  # chance of a false alarm of one cell in one night
FDR = 0.05
_CODES = {Verdict.SLOWER: -1, Verdict.SAME: 0, Verdict.FASTER: 1, Verdict.UNDECIDED: 2}
SLOWER, SAME, FASTER, UNDECIDED = _CODES.values()
_WORDS = {code: word for word, code in _CODES.items()}


def interim_levels(looks: Sequence[int], alpha: float = ALPHA) -> list[float]:
    """The level at which each look may decide, for looks after so many repeats; together no more than `alpha`.

    What O'Brien and Fleming's boundary has spent by then (Lan & DeMets 1983), less what it had spent before. The levels add up, so the
    bound holds whatever the dependence between looks; and nearly all of `alpha` is left for the last one.
    Raises ValueError for looks that do not rise.
    """
    if not looks or any(b <= a for a, b in pairwise(looks)) or looks[0] < 1:
        raise ValueError(f"looks must be rising numbers of repeats, got {list(looks)}")
    z = special.ndtri(1 - alpha / 2)
    spent = [float(2 * special.ndtr(-z / np.sqrt(look / looks[-1]))) for look in looks]
    return [now - before for now, before in zip(spent, [0.0, *spent[:-1]], strict=True)]


def decide(
    effect: NightEffect, minimum: ArrayLike, level: ArrayLike, *, alpha: float = ALPHA, fdr: float = FDR
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Codes (SLOWER, SAME, FASTER, UNDECIDED) and q-values of a night's cells, the last axis of every array.

    `minimum`: the smallest change that matters, 0.03 for 3 %. `level`: what `look_levels` gives for the look at which a cell stands.
    slower / faster: p < level, q < fdr (Benjamini & Hochberg 1995), and at least `minimum`. same: the 95 % interval lies within
    `minimum`. A cell whose effect is not known (NaN) is undecided.
    """
    size = np.asarray(effect.effect, dtype=float)
    known = np.isfinite(size) & np.isfinite(effect.se)
    p = np.where(known, effect.p_value, 1.0)
    spent = np.clip(np.where(known, p * alpha / np.asarray(level, dtype=float), 1.0), 0, 1)
    q = np.asarray(stats.false_discovery_control(spent, axis=-1)) if size.shape[-1] else spent
    edge = np.log1p(np.asarray(minimum, dtype=float))
    with np.errstate(invalid="ignore"):
        found = known & (spent < alpha) & (q < fdr) & (np.abs(size) >= edge)
        level_with_1 = np.abs(size) + special.stdtrit(effect.df, 0.975) * effect.se < edge
    codes = np.select([found & (size < 0), found, known & level_with_1], [SLOWER, FASTER, SAME], UNDECIDED)
    return codes.astype(np.int8), q


def word(code: int) -> Verdict:
    """The verdict behind a code of `judge`."""
    return _WORDS[int(code)]


def as_estimate(effect: NightEffect, index: int, repeats: int) -> Estimate:
    """One cell's effect as a ratio, > 1 is better, with its 95 % interval."""
    size, se, df = float(effect.effect[index]), float(effect.se[index]), float(effect.df[index])
    half = float(special.stdtrit(df, 0.975)) * se
    return Estimate(float(np.exp(size)), float(np.exp(size - half)), float(np.exp(size + half)), se, df, repeats)


def rate_interval(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a rate (Clopper & Pearson 1934); 0 to 1 where nothing was tried. Raises ValueError for more hits than trials."""
    if trials == 0:
        return 0.0, 1.0
    found = stats.binomtest(hits, trials).proportion_ci(level, method="exact")
    return float(found.low), float(found.high)
