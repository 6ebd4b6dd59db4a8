"""The sequential test of a night: tonight's commit against a good one, in pairs measured one after the other on one node. Pure, on arrays.

Whatever a node does to both commits cancels, so the test needs neither canary nor past nights, holds its level cell by cell, and does not
lose power to the number of cells. Past nights only say how far apart trials usually are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from experiments.regression.decision import ALPHA, FASTER, SAME, SLOWER, UNDECIDED
from experiments.regression.effect import RESOLUTION
from experiments.regression.screen import SHARE, UNSURE
from experiments.stats.estimate import LEVEL, Estimate, estimate_from_log
from experiments.stats.interim_levels import look_levels
from experiments.stats.interim_looks import Look

Array = NDArray[np.float64]

PAIRS = (3, 4, 6, 8, 11, 15, 20, 25, 30)  # numbers of pairs after which the test looks; the last is the most
TRIES = 2  # so many times the most pairs are planned at most, where trials fail or other work disturbs them
SPENDING = 2.0  # power of the share of pairs that the chance of error follows
PRIOR_DF = 3.0  # degrees of freedom that the spread of past nights is worth at most
FUTILITY = 0.4  # chance of giving up on a change as large as the smallest that matters
_TRIM = 5  # of so many pairs one is left out at each end
_TRIM_COST = 1.1  # variance of such a mean over that of a plain one, for normal noise


@dataclass(frozen=True)
class PairedEffect:
    """Tonight's commit over the good one, as a logarithm (-0.05 is about 5 % slower), its standard error and degrees of freedom.

    All arrays of shape (...); `n`: pairs that each was made of.
    """

    effect: Array
    se: Array
    df: Array
    n: int

    @property
    def p_value(self) -> Array:
        """Two-sided p-value of no change, by Student's t."""
        return np.asarray(2 * special.stdtr(self.df, -np.abs(self.effect) / self.se))

    def estimate(self, index: int | tuple[int, ...] = ()) -> Estimate:
        """The effect at `index` as a ratio (above 1 is better) with Student's 95 % interval."""
        return estimate_from_log(float(self.effect[index]), float(self.se[index]), float(self.df[index]), self.n, LEVEL)


def paired_effect(pairs: ArrayLike, usual: ArrayLike = np.nan) -> PairedEffect:
    """The effect of paired log ratios (..., n), tonight's value less the good commit's, more is better; n is at least two.

    The location is the mean without the lowest and the highest of each five, its error that of Yuen & Dixon 1973 (Biometrika 60(2)): one
    slow trial in twenty does not decide. The variance is moderated (Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3(1)): three pairs alone tell
    a spread badly, so that which past nights had counts as PRIOR_DF degrees of freedom more; as fewer, by the ratio of the variances, where
    tonight's pairs vary more than that, as on a rough night. `usual`: the standard deviation of one repeat on past nights
    (`NightEffect.within`), of shape (...) or one number; without it (NaN or 0), only the pairs count.
    Raises ValueError for fewer than two pairs.
    """
    values = np.sort(np.asarray(pairs, dtype=float), axis=-1)
    n = values.shape[-1]
    if n < 2:
        raise ValueError(f"a paired effect needs two pairs, got {n}")
    cut = n // _TRIM
    kept = n - 2 * cut
    inner = values[..., cut : n - cut]
    winsorised = np.clip(values, inner[..., :1], inner[..., -1:])
    around = winsorised - winsorised.mean(-1, keepdims=True)
    own = (around**2).sum(-1) * n / (kept * (kept - 1))  # variance of one pair, as far as it follows from the error of the mean
    past = 2 * np.asarray(usual, dtype=float) ** 2 * (_TRIM_COST if cut else 1.0)
    known = past > 0  # False for NaN
    weight = np.where(known, PRIOR_DF * np.divide(past, np.fmax(own, past), out=np.zeros(own.shape), where=known), 0.0)
    df = kept - 1 + weight
    variance = (weight * np.nan_to_num(past) + (kept - 1) * own) / df
    return PairedEffect(inner.mean(-1), np.maximum(np.sqrt(variance / n), RESOLUTION), np.broadcast_to(df, own.shape), n)


def pair_levels(looks: Sequence[int], alpha: float = ALPHA) -> list[float]:
    """The two-sided level of each look, so that all together err with probability `alpha` in each direction, allowing for what they share.

    In each, since a screen has seen one: pairs that contradict it are given up early (`worth_more`).

    The chance is spent with the square of the share of pairs (power family: Kim & DeMets 1987): large changes are found with few pairs, and
    most is left for the looks that know tonight's spread.
    Raises ValueError for looks that do not rise, or that begin below two pairs.
    """
    if not looks or looks[0] < 2 or any(later <= earlier for earlier, later in pairwise(looks)):
        raise ValueError(f"looks need rising numbers of pairs from 2 on, got {list(looks)}")
    return look_levels([Look(round=count, spent=(count / looks[-1]) ** SPENDING) for count in looks], 2 * alpha)


def next_pairs(have: int, looks: Sequence[int] = PAIRS) -> int | None:
    """How many pairs there must be for the next look; None where `have` reaches the last."""
    return next((count for count in looks if count > have), None)


def pairs_to_plan(planned: int, counted: int, looks: Sequence[int] = PAIRS) -> int | None:
    """How many pairs to plan in all, so that the next look has its pairs if none of the new ones is lost, as by a trial that fails.

    `counted`: those of the `planned` that count. None where they reach the last look, or where that would plan more than TRIES times the
    last look's pairs.
    """
    more = next_pairs(counted, looks)
    if more is None or (count := planned + more - counted) > TRIES * looks[-1]:
        return None
    return count


def judge_pairs(
    pairs: ArrayLike, usual: ArrayLike, minimum: ArrayLike, *, looks: Sequence[int] = PAIRS, alpha: float = ALPHA
) -> tuple[NDArray[np.int8], PairedEffect]:
    """Codes (SLOWER, SAME, FASTER, UNDECIDED: experiments/regression/decision.py) of paired log ratios (..., n), and their effects.

    slower / faster: p is below this look's level, and the change is at least SHARE of `minimum`, the smallest that matters; were it held
    to all of it, a change of exactly that size would be missed every second night. same: the 95 % interval lies within `minimum`.
    undecided: measure on to `next_pairs`, if `worth_more`, or say so. Pairs after the last look that was reached, as where time ran out, do
    not count: a look that was not planned has no level. Before the first look nothing is slower or faster. `usual` as in `paired_effect`.
    Raises ValueError for fewer than two pairs.
    """
    values = np.asarray(pairs, dtype=float)
    levels = {count: level for count, level in zip(looks, pair_levels(looks, alpha), strict=True) if count <= values.shape[-1]}
    found = paired_effect(values[..., : max(levels, default=None)], usual)
    edge = np.log1p(np.asarray(minimum, dtype=float))
    clear = (found.p_value < levels.get(found.n, 0.0)) & (np.abs(found.effect) >= SHARE * edge)
    within = np.abs(found.effect) + special.stdtrit(found.df, (1 + LEVEL) / 2) * found.se < edge
    codes = np.select([clear & (found.effect < 0), clear, within], [SLOWER, FASTER, SAME], UNDECIDED)
    return codes.astype(np.int8), found


def worth_more(found: PairedEffect, looked: ArrayLike, minimum: ArrayLike) -> NDArray[np.bool_]:
    """Whether more pairs of an undecided cell may still show the change that its screen saw; of the effects' shape (...).

    `looked`: WORSE, BETTER or UNSURE (experiments/regression/screen.py), which is either direction. False where a change by `minimum` in
    that direction is less than FUTILITY times as likely as none: the lower boundary of Wald's sequential probability ratio test (1945,
    Ann. Math. Stat. 16(2)). Stopping there can only lower the chance of a false alarm, and is what makes rough cells cost less than their
    most pairs.
    """
    edge = np.log1p(np.asarray(minimum, dtype=float))
    towards = np.where(np.asarray(looked) == UNSURE, np.abs(found.effect), np.asarray(looked) * found.effect)
    log_ratio = (edge * towards - edge**2 / 2) / found.se**2
    return np.asarray(log_ratio >= np.log(FUTILITY))
