"""The simulated night judges as real ones do."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.noise import FAMILIES, JUDGED, PLANNED, Disturbed, Nights, disturbed
from benchmarks.two_commits import MINIMUM, REPEATS, alarms, by_history, creep_found, effect_of, in_pairs, two_commits
from experiments.regression.decision import ALPHA, FASTER, SAME, SLOWER, UNDECIDED, word
from experiments.regression.paired_test import PAIRS, judge_pairs, worth_more
from experiments.regression.screen import BETTER, UNSURE, WORSE, looks_changed
from experiments.regression.settle import settle
from experiments.stats.verdict import Verdict

Array = NDArray[np.float64]


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
    assert suspected.mean() > 0.95 and found.mean() > 0.95 and shown.mean() > 0.85
    suspected, found, shown = creep_found(nights, 20, 0.0)
    assert found.sum() == 0 and shown.sum() == 0 and suspected.mean() < 0.2


# --- trials that other work disturbs

SHARE = 0.3
NULL = 4000  # cells in which nothing changed
SD = 0.02  # of a pair


def null_pairs(seed: int, sd: float = SD) -> tuple[Array, NDArray[np.bool_]]:
    """Pairs of cells in which nothing changed, and which of them are disturbed: then tonight's commit looks 10 % slower."""
    random = np.random.default_rng(seed)
    out = random.random((NULL, PLANNED)) < SHARE
    return sd * random.normal(size=out.shape) - 0.1 * out, out


@pytest.mark.parametrize(("sd", "past"), [(SD, SD), (3 * SD, 3 * SD), (SD, math.nan)])
@pytest.mark.parametrize("saw", [WORSE, BETTER, UNSURE])
def test_disturbed_pairs_raise_no_more_false_alarms_than_a_night_may(sd: float, past: float, saw: int) -> None:
    """Every cell is measured in pairs here, as if the screen had suspected it: ALPHA is the bound in each direction. `past`: the spread of
    a pair by what past nights had."""
    pairs, out = null_pairs(11, sd)
    looked, usual = np.full(NULL, saw, dtype=np.int8), np.full(NULL, past / math.sqrt(2))
    left_out, _ = in_pairs(pairs, looked, usual, out)
    assert (left_out == SLOWER).mean() <= ALPHA and (left_out == FASTER).mean() <= ALPHA
    if saw != BETTER and sd == SD:
        assert alarms(in_pairs(pairs, looked, usual)[0]).mean() > 5 * ALPHA, "counted all the same they would be alarms"
    without, _ = in_pairs(np.where(out, np.nan, pairs), looked, usual, out)
    assert np.array_equal(left_out, without), "their values play no part"


def test_a_change_is_found_among_disturbed_pairs() -> None:
    sd = 2 * SD
    pairs, out = null_pairs(12, sd)
    codes, taken = in_pairs(pairs + math.log1p(-0.05), np.full(NULL, WORSE, dtype=np.int8), np.full(NULL, sd / math.sqrt(2)), out)
    assert (codes == SLOWER).mean() > 0.95
    assert taken.max() <= PLANNED and (taken > PAIRS[-1]).any(), "more are measured in place of those that do not count"


def test_pairs_are_planned_anew_up_to_twice_the_most() -> None:
    """Of one cell all pairs are disturbed, of another those from the 31st on, of the third the first 30. None is ever decided."""
    some = np.tile([-0.09, 0.06], PLANNED // 2)
    out = np.array([[True] * PLANNED, [False] * PAIRS[-1] + [True] * PAIRS[-1], [True] * PAIRS[-1] + [False] * PAIRS[-1]])
    codes, taken = in_pairs(np.stack([some] * 3), np.full(3, WORSE, dtype=np.int8), np.full(3, 0.05), out)
    assert codes.tolist() == [UNDECIDED] * 3 and taken.tolist() == [PLANNED, PAIRS[-1], PLANNED]


@pytest.mark.parametrize("noise", ["quiet", "outliers", "spread × 3", "rough"])
def test_disturbed_nights_have_no_more_false_alarms_and_no_verdict_rests_on_disturbed_trials_alone(noise: str) -> None:
    calm = draw(noise, runs=60)
    none = Disturbed(*(np.zeros(values.shape, dtype=bool) for values in (calm.cells, calm.canary, calm.pairs)))
    plain, same = two_commits(calm), two_commits(replace(calm, disturbed=none))
    assert np.array_equal(plain.codes, same.codes) and np.array_equal(plain.trials, same.trials)
    beside = disturbed(calm, np.random.default_rng(3), SHARE)
    judged = two_commits(beside)
    assert alarms(judged.codes).mean() <= ALPHA
    assert beside.disturbed is not None
    alone = beside.disturbed.cells[:, :, -JUDGED:, :REPEATS].all(-1)
    assert alone.any() and (judged.codes[alone & ~judged.screened] == UNDECIDED).all()


def test_two_pairs_that_count_may_show_that_a_cell_is_the_same() -> None:
    """As a real night does, which looks at what is left of the first three."""
    out = np.array([[True] + [False] * (PLANNED - 1)])
    codes, taken = in_pairs(np.tile([0.0001, -0.0001], (1, PLANNED // 2)), np.full(1, WORSE, dtype=np.int8), np.full(1, 0.001), out)
    assert (codes.tolist(), taken.tolist()) == ([SAME], [PAIRS[0]])
