"""A night's rule on simulated nights: the screen, then pairs of two commits, judged by the code that judges real nights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.noise import JUDGED, Nights
from experiments.regression.creep import trend
from experiments.regression.decision import ALPHA, FASTER, SAME, SLOWER, UNDECIDED, decide
from experiments.regression.effect import NightEffect, night_effect, night_value
from experiments.regression.paired_test import judge_pairs, pairs_to_plan, worth_more
from experiments.regression.screen import WORSE, looks_changed
from experiments.stats.interim_levels import interim_levels

Array = NDArray[np.float64]
Codes = NDArray[np.int8]

BASELINE = 20  # nights
REPEATS = 3  # of the screen
LOOKS = [3, 5, 8]  # repeats where history alone judges
MINIMUM = 0.03


@dataclass(frozen=True)
class Judged:
    """Codes and trials of cells (runs, cells, nights judged); `screened`: what was measured again."""

    codes: Codes
    trials: NDArray[np.int_]
    screened: NDArray[np.bool_]


def two_commits(nights: Nights, *, judged: int = JUDGED, repeats: int = REPEATS) -> Judged:
    """Each of the first `judged` nights against the 20 before it; what looks changed, in pairs."""
    shape = (*nights.cells.shape[:2], judged)
    codes, taken, screened = np.full(shape, UNDECIDED, dtype=np.int8), np.full(shape, repeats), np.zeros(shape, dtype=bool)
    level = interim_levels(LOOKS, ALPHA)[0]
    for night in range(judged):
        effect, for_nothing = effect_of(nights, night, repeats), all_disturbed(nights, night, repeats)
        looked = looks_changed(effect, MINIMUM)
        chosen = looked != 0
        alone, _ = decide(effect, MINIMUM, level)
        codes[..., night] = np.where((alone == SAME) & ~for_nothing, SAME, UNDECIDED)
        pairs = nights.pairs[:, :, night][chosen]
        out = None if nights.disturbed is None else nights.disturbed.pairs[:, :, night][chosen].any(-1)
        codes[..., night][chosen], pairs_taken = in_pairs(pairs[..., 1] - pairs[..., 0], looked[chosen], effect.within[chosen], out)
        taken[..., night][chosen] += 2 * pairs_taken
        screened[..., night] = chosen
    return Judged(codes, taken, screened)


def effect_of(nights: Nights, night: int, repeats: int) -> NightEffect:
    """The effect of one judged night (0 is the first), of shape (runs, cells), by what counts as tasks/nightly/comparison.py has it: of a
    cell all its trials tonight where other work disturbed each."""
    tonight = nights.cells.shape[2] - JUDGED + night
    when = slice(tonight - BASELINE, tonight)
    cells, canary = nights.cells[..., :repeats], nights.canary[..., :repeats]
    if nights.disturbed is not None:
        shown = np.where(all_disturbed(nights, night, repeats)[..., None], cells[:, :, tonight], np.nan)
        cells = np.where(nights.disturbed.cells[..., :repeats], np.nan, cells)
        cells[:, :, tonight] = np.where(np.isnan(shown), cells[:, :, tonight], shown)
        canary = _with_mean(np.where(nights.disturbed.canary[..., :repeats], np.nan, canary))
    beside = np.broadcast_to(canary[:, None], cells.shape)
    return night_effect(cells[:, :, when], cells[:, :, tonight], beside[:, :, when], beside[:, :, tonight])


def all_disturbed(nights: Nights, night: int, repeats: int) -> NDArray[np.bool_]:
    """Whether other work disturbed each of a cell's trials on a judged night, of shape (runs, cells): no verdict rests on them alone."""
    tonight = nights.cells.shape[2] - JUDGED + night
    if nights.disturbed is None:
        return np.zeros(nights.cells.shape[:2], dtype=bool)
    return np.asarray(nights.disturbed.cells[:, :, tonight, :repeats].all(-1))


def _with_mean(values: Array) -> Array:
    """Where the canary of a round does not count, its night's others stand for it."""
    count = np.isfinite(values).sum(-1, keepdims=True)
    mean = np.divide(np.nansum(values, -1, keepdims=True), count, out=np.full(count.shape, np.nan), where=count > 0)
    return np.where(np.isnan(values), mean, values)


def in_pairs(
    pairs: Array, looked: NDArray[np.int8], usual: Array, disturbed: NDArray[np.bool_] | None = None
) -> tuple[Codes, NDArray[np.int_]]:
    """The code of each of the cells (cells, pairs), and the pairs it took. `disturbed`: the pairs that do not count; they are measured
    again, as tasks/nightly/pairing.py plans them."""
    out = np.zeros(pairs.shape, dtype=bool) if disturbed is None else disturbed
    counted = np.cumsum(~out, axis=-1)
    in_front = np.take_along_axis(pairs, np.argsort(out, axis=-1, kind="stable"), axis=-1)  # those that count, in their order
    codes, planned, have = np.full(len(pairs), UNDECIDED, dtype=np.int8), np.zeros(len(pairs), dtype=int), np.zeros(len(pairs), dtype=int)
    still = np.arange(len(pairs))
    while still.size:
        plans = [pairs_to_plan(int(planned[cell]), int(have[cell])) for cell in still]
        still = still[[plan is not None for plan in plans]]
        planned[still] = [plan for plan in plans if plan is not None]
        have[still] = counted[still, planned[still] - 1]
        open_ = np.ones(still.size, dtype=bool)
        for count in np.unique(have[still][have[still] >= 2]):
            at = have[still] == count
            some = still[at]
            codes[some], found = judge_pairs(in_front[some, :count], usual[some], MINIMUM)
            open_[at] = (codes[some] == UNDECIDED) & worth_more(found, looked[some], MINIMUM)
        still = still[open_]
    return codes, planned


def by_history(nights: Nights) -> Judged:
    """The first judged night by canary and history alone, with interim analyses and false discovery rate: what judges an environment."""
    tonight = nights.cells.shape[2] - JUDGED
    now = nights.cells[:, :, tonight, : LOOKS[-1]]
    canary = np.broadcast_to(nights.canary[:, None], nights.cells.shape)
    past, canary_past = (_padded(values[:, :, tonight - BASELINE : tonight, :REPEATS], LOOKS[-1]) for values in (nights.cells, canary))
    levels = np.array(interim_levels(LOOKS, ALPHA))
    taken = np.full(now.shape[:2], LOOKS[0])
    codes = np.full(now.shape[:2], UNDECIDED, dtype=np.int8)
    for look in LOOKS:
        taken = np.where(codes == UNDECIDED, look, taken)
        there = np.arange(LOOKS[-1]) < taken[..., None]
        canary_now = np.where(there, canary[:, :, tonight, : LOOKS[-1]], np.nan)
        effect = night_effect(past, np.where(there, now, np.nan), canary_past, canary_now)
        codes, _ = decide(effect, MINIMUM, levels[np.searchsorted(LOOKS, taken)])
    return Judged(codes[..., None], taken[..., None], np.zeros((*codes.shape, 1), dtype=bool))


def creep_found(nights: Nights, length: int, loss: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Of the first cell in each run, whose code became slower by `loss` (a logarithm) every night of a segment of `length` nights:
    suspected by the trend, then found in pairs against the first good commit; and shown by the trend alone."""
    end = nights.cells.shape[2] - JUDGED + 1
    steps = -loss * np.arange(length)
    cell = night_value(nights.cells[:, 0, end - length : end, :REPEATS] + steps[:, None])
    line = trend(cell, night_value(nights.canary[:, end - length : end, :REPEATS]))
    usual = effect_of(nights, 0, REPEATS).within[:, 0]
    pairs = nights.pairs[:, 0, 0, :, 1] - nights.pairs[:, 0, 0, :, 0] + steps[-1]
    suspected = line.suspected(MINIMUM)
    looked = np.full(len(pairs), WORSE, dtype=np.int8)
    return suspected, suspected & (in_pairs(pairs, looked, usual)[0] == SLOWER), line.shown(MINIMUM)


def alarms(codes: Codes) -> NDArray[np.bool_]:
    return np.isin(codes, (SLOWER, FASTER))


def _padded(values: Array, width: int) -> Array:
    room = np.full((*values.shape[:-1], width - values.shape[-1]), np.nan)
    return np.concatenate([values, room], axis=-1)
