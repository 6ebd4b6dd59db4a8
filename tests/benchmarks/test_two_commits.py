"""The simulated night judges as real ones do."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.noise import FAMILIES, JUDGED, Nights
from benchmarks.two_commits import MINIMUM, REPEATS, alarms, by_history, creep_found, effect_of, in_pairs, two_commits
from experiments.regression.decision import SAME, SLOWER, UNDECIDED, word
from experiments.regression.paired_test import PAIRS, judge_pairs, worth_more
from experiments.regression.screen import WORSE, looks_changed
from experiments.regression.settle import settle
from experiments.stats.verdict import Verdict


def draw(name: str, effect: float = 0.0, runs: int = 30, cells: int = 8) -> Nights:
    nights = FAMILIES[name](np.random.default_rng(7), runs, cells, 30)
    nights.cells[:, 0, -JUDGED:] += math.log1p(effect)
    nights.pairs[:, 0, ..., 1] += math.log1p(effect)
    return nights


def test_a_cells_verdict_and_trials_do_not_depend_on_how_many_others_there_are() -> None:
    nights = draw("rough", -0.05)
    alone = Nights(nights.cells[:, :1], nights.canary, nights.pairs[:, :1], nights.counted[:1])
    many, one = two_commits(nights), two_commits(alone)
    assert np.array_equal(many.codes[:, :1], one.codes) and np.array_equal(many.trials[:, :1], one.trials)


def test_trials_are_those_of_the_screen_and_two_a_pair() -> None:
    judged = two_commits(draw("rough", -0.05))
    assert np.all(judged.trials[~judged.screened] == REPEATS)
    assert (
        set((judged.trials[judged.screened] - REPEATS) // 2) <= set(PAIRS)
        and judged.trials[judged.screened].min() == REPEATS + 2 * PAIRS[0]
    )
    assert (judged.screened & (judged.codes == UNDECIDED)).any(), "what is given up stays undecided"


def test_alarms_come_from_pairs_alone_and_as_settled() -> None:
    nights = draw("node swap", -0.05)
    judged = two_commits(nights)
    assert not alarms(judged.codes[~judged.screened]).any()
    looked = looks_changed(effect_of(nights, 0, REPEATS), MINIMUM)
    usual = effect_of(nights, 0, REPEATS).within
    differences = nights.pairs[:, :, 0, :, 1] - nights.pairs[:, :, 0, :, 0]
    for run, cell in np.argwhere(looked != 0)[:30]:
        code = UNDECIDED
        for count in PAIRS:
            codes, effect = judge_pairs(differences[run, cell, :count], usual[run, cell], MINIMUM)
            code = int(codes)
            if code != UNDECIDED or not worth_more(effect, looked[run, cell], MINIMUM):
                break
        found = settle(Verdict.SLOWER, word(code), code_changed=True, environment_changed=False)
        assert word(judged.codes[run, cell, 0]) is found.verdict


def test_a_slow_down_is_found_and_another_node_is_not_called_one() -> None:
    assert (two_commits(draw("quiet", -0.05)).codes[:, 0, 0] == SLOWER).mean() > 0.95
    swapped = two_commits(draw("node swap"))
    assert swapped.screened.mean() > 0.9 and alarms(swapped.codes).mean() < 0.01
    assert alarms(by_history(draw("node swap")).codes).mean() > 0.05, "which history alone would"


def test_pairs_stop_where_they_decide() -> None:
    clear, same = np.full((2, PAIRS[-1]), -0.08), np.tile([0.001, -0.001], (1, PAIRS[-1]))[:, : PAIRS[-1]]
    codes, taken = in_pairs(np.concatenate([clear, same]), np.full(3, WORSE, dtype=np.int8), np.full(3, 0.001))
    assert codes.tolist() == [SLOWER, SLOWER, SAME] and taken.tolist() == [PAIRS[0]] * 3


def test_creep_is_found_against_the_first_commit_of_the_segment_and_not_where_there_is_none() -> None:
    nights = draw("quiet", runs=60)
    suspected, found, shown = creep_found(nights, 20, 0.003)
    assert suspected.mean() > 0.95 and found.mean() > 0.95 and shown.mean() > 0.95
    suspected, found, shown = creep_found(nights, 20, 0.0)
    assert found.sum() == 0 and shown.sum() == 0 and suspected.mean() < 0.2
