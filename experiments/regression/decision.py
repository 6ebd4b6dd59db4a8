"""Decides the verdicts of many cells at once, at every interim analysis of a night. Pure, on arrays.

`slower` and `faster` must pass three tests: the cell's own chance of a false alarm (`alpha` a night, spent over the interim analyses), the
false discovery rate over all cells of the night (`fdr`), and a change at least as large as the smallest that matters for the cell.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from experiments.regression.effect import NightEffect
from experiments.stats.estimate import LEVEL, Estimate, estimate_from_log
from experiments.stats.verdict import Verdict

ALPHA = 0.01  # chance of a false alarm of one cell in one night
FDR = 0.05  # false discovery rate over the cells of a night
_CODES = {Verdict.SLOWER: -1, Verdict.SAME: 0, Verdict.FASTER: 1, Verdict.UNDECIDED: 2}
SLOWER, SAME, FASTER, UNDECIDED = _CODES.values()
_WORDS = {code: word for word, code in _CODES.items()}


def decide(
    effect: NightEffect, minimum: ArrayLike, level: ArrayLike, *, alpha: float = ALPHA, fdr: float = FDR
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Codes (SLOWER, SAME, FASTER, UNDECIDED) and q-values of the cells of a night, both of the effects' shape (..., cells).

    `minimum`: the smallest change that matters, 0.03 for 3 %. `level`: that of `interim_levels` (experiments/stats/interim_levels.py) for
    the analysis that a cell has reached. Both are one number, or one for each cell.
    slower / faster: p < level, q < fdr (Benjamini & Hochberg 1995), and the change is at least `minimum`. same: the 95 % interval lies
    within `minimum`. A cell whose effect is unknown (NaN) is undecided, with a q-value of 1.
    """
    size = np.asarray(effect.effect, dtype=float)
    known = np.isfinite(size) & np.isfinite(effect.se)
    p = np.where(known, effect.p_value, 1.0)
    spent = np.clip(np.where(known, p * alpha / np.asarray(level, dtype=float), 1.0), 0, 1)
    q = np.asarray(stats.false_discovery_control(spent, axis=-1)) if size.shape[-1] else spent
    edge = np.log1p(np.asarray(minimum, dtype=float))
    with np.errstate(invalid="ignore"):
        changed = known & (spent < alpha) & (q < fdr) & (np.abs(size) >= edge)
        within_edge = np.abs(size) + special.stdtrit(effect.df, (1 + LEVEL) / 2) * effect.se < edge
    codes = np.select([changed & (size < 0), changed, known & within_edge], [SLOWER, FASTER, SAME], UNDECIDED)
    return codes.astype(np.int8), q


def word(code: int) -> Verdict:
    """The verdict of a code that `decide` gives. Raises KeyError for any other number."""
    return _WORDS[int(code)]


def as_estimate(effect: NightEffect, index: int, repeats: int) -> Estimate:
    """The effect at `index` as a ratio (above 1 is better) with Student's 95 % interval; `effect` has one axis, the cells."""
    return estimate_from_log(float(effect.effect[index]), float(effect.se[index]), float(effect.df[index]), repeats, LEVEL)
