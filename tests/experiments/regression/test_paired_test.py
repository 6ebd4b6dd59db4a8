"""Tonight's commit against a good one, in pairs: interval, levels, words, chance of error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.regression.decision import FASTER, SAME, SLOWER, UNDECIDED
from experiments.regression.paired_test import (
    FUTILITY,
    PAIRS,
    PRIOR_DF,
    PairedEffect,
    judge_pairs,
    next_pairs,
    pair_levels,
    paired_effect,
    pairs_to_plan,
    worth_more,
)
from experiments.regression.screen import BETTER, UNSURE, WORSE


def test_without_past_nights_a_few_pairs_have_students_interval() -> None:
    pairs = [0.01, 0.03, 0.08]
    found = paired_effect(pairs)
    low, high = stats.t.interval(0.95, 2, np.mean(pairs), stats.sem(pairs))
    estimate = found.estimate()
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((math.exp(0.04), math.exp(low), math.exp(high)))
    assert (estimate.df, estimate.n) == (2, 3)
    assert float(found.p_value) == pytest.approx(stats.ttest_1samp(pairs, 0).pvalue)
    assert float(paired_effect([0.02, 0.02, 0.02]).se) == 5e-4, "no difference is known better than a night's resolution"
    with pytest.raises(ValueError, match="two pairs"):
        paired_effect([0.01])


def test_from_five_pairs_on_it_is_yuens_trimmed_mean() -> None:
    pairs = [-0.30, -0.06, -0.05, -0.03, 0.01]
    found = paired_effect(pairs)
    winsorised = [-0.06, -0.06, -0.05, -0.03, -0.03]
    assert float(found.effect) == pytest.approx(np.mean([-0.06, -0.05, -0.03]))
    assert float(found.se) == pytest.approx(math.sqrt(4 * np.var(winsorised, ddof=1) / (3 * 2)))
    assert float(found.df) == 2
    assert float(paired_effect([-0.30, -0.06, -0.05, -0.03]).effect) == pytest.approx(-0.11), "of four none is left out"
    ten = paired_effect([-0.5, -0.4, *[-0.05] * 6, 0.4, 0.5])
    assert float(ten.effect) == pytest.approx(-0.05) and float(ten.df) == 5


def test_past_nights_count_as_three_degrees_of_freedom_of_the_spread() -> None:
    pairs = [-0.07, -0.05, -0.03]
    found = paired_effect(pairs, 0.02)
    assert float(found.df) == 2 + PRIOR_DF == 5
    assert float(found.se) == pytest.approx(math.sqrt((3 * 2 * 0.02**2 + 2 * 0.02**2) / 5 / 3))
    trimmed = paired_effect([-0.08, -0.07, -0.05, -0.03, -0.02], 0.05)
    own = 5 * 4 * np.var([-0.07, -0.07, -0.05, -0.03, -0.03], ddof=1) / (3 * 2)
    assert float(trimmed.se) == pytest.approx(math.sqrt((3 * 2 * 1.1 * 0.05**2 + 2 * own) / 5 / 5))
    rough = paired_effect(pairs, 0.01)  # tonight's pairs vary by twice the variance that past nights had
    assert float(rough.df) == pytest.approx(2 + PRIOR_DF / 2)
    assert float(rough.se) == pytest.approx(math.sqrt((1.5 * 2 * 0.01**2 + 2 * 0.02**2) / 3.5 / 3))
    for unknown in (0.0, math.nan):
        assert float(paired_effect(pairs, unknown).se) == pytest.approx(stats.sem(pairs))
    many = paired_effect([pairs, pairs], np.array([0.02, math.nan]))
    assert many.se.tolist() == pytest.approx([float(found.se), stats.sem(pairs)]) and many.df.tolist() == [5, 2]


def test_the_chance_of_error_in_each_direction_is_spent_with_the_square_of_the_share_of_pairs() -> None:
    levels = pair_levels([3, 6], 0.01)
    assert levels[0] == pytest.approx(2 * 0.01 * (3 / 6) ** 2, rel=1e-6)
    assert 2 * 0.0075 < levels[1] < 2 * 0.01, "the last look shares some of its chance with the first"
    assert pair_levels([8], 0.02) == pytest.approx([0.04], rel=1e-6)
    for wrong in ([], [1, 3], [5, 5], [8, 3]):
        with pytest.raises(ValueError, match="rising numbers of pairs"):
            pair_levels(wrong)


def test_the_next_look() -> None:
    assert [next_pairs(have, (3, 5, 8)) for have in (0, 2, 3, 4, 5, 7, 8, 9)] == [3, 3, 5, 5, 8, 8, None, None]


@pytest.mark.parametrize(("sign", "word"), [(-1, SLOWER), (1, FASTER)])
def test_a_change_is_called_at_its_level_and_not_above(sign: int, word: int) -> None:
    spread = np.array([-0.01, 0.0, 0.01])
    edge = stats.t.isf(pair_levels([3, 5], 0.01)[0] / 2, 2) * stats.sem(spread)
    for more, expected in ((1.001, word), (0.999, UNDECIDED)):
        codes, _ = judge_pairs(spread + sign * edge * more, math.nan, 0.03, looks=[3, 5])
        assert int(codes) == expected


@pytest.mark.parametrize(("sign", "word"), [(-1, SLOWER), (1, FASTER)])
def test_a_clear_change_counts_from_half_of_what_matters_on(sign: int, word: int) -> None:
    for share, expected in ((0.501, word), (0.499, SAME)):
        codes, _ = judge_pairs(np.full(8, sign * share * math.log(1.03)) + [-1e-4, 1e-4] * 4, 0.001, 0.03)
        assert int(codes) == expected


def test_same_is_said_where_the_whole_interval_is_within_what_matters() -> None:
    spread = np.array([-0.01, 0.0, 0.01])
    edge = math.log(1.03) - stats.t.isf(0.025, 2) * stats.sem(spread)
    assert int(judge_pairs(spread + edge - 1e-5, math.nan, 0.03)[0]) == SAME
    assert int(judge_pairs(spread + edge + 1e-5, math.nan, 0.03)[0]) == UNDECIDED
    assert int(judge_pairs(-spread - edge + 1e-5, math.nan, 0.03)[0]) == SAME


def test_pairs_beyond_the_last_look_and_before_the_first_decide_nothing() -> None:
    clear = [-0.05, -0.051, -0.049]
    assert int(judge_pairs(clear[:2], 0.001, 0.03, looks=[3, 5])[0]) == UNDECIDED
    codes, found = judge_pairs([*clear, 0.9], 0.001, 0.03, looks=[3, 5])
    assert (int(codes), found.n) == (SLOWER, 3)


@pytest.mark.parametrize(("true", "believed", "most"), [(0.01, 0.01, 0.0125), (0.03, 0.03, 0.0125), (0.01, math.nan, 0.0175)])
def test_unchanged_code_is_called_slower_or_faster_no_more_often_than_promised(true: float, believed: float, most: float) -> None:
    random = np.random.default_rng(3)
    pairs = math.sqrt(2) * true * random.normal(size=(20_000, PAIRS[-1]))  # with few degrees of freedom t is held to normal levels
    slower, faster = np.zeros((2, len(pairs)), dtype=bool)
    for count in PAIRS:
        codes, _ = judge_pairs(pairs[:, :count], believed, 1e-6)  # any size counts
        slower, faster = slower | (codes == SLOWER), faster | (codes == FASTER)
    assert 0.006 < slower.mean() < most and 0.006 < faster.mean() < most


def test_a_change_that_matters_is_given_up_where_it_is_less_than_two_fifths_as_likely_as_none() -> None:
    edge, se = math.log(1.03), 0.02
    at = (edge**2 / 2 + math.log(FUTILITY) * se**2) / edge  # where the likelihood ratio is FUTILITY
    assert FUTILITY == 0.4
    for size, more in ((at + 1e-6, True), (at - 1e-6, False)):
        for looked, sign in ((WORSE, -1), (BETTER, 1)):
            assert bool(worth_more(effect(sign * size, se), looked, 0.03)) is more
        assert bool(worth_more(effect(size, se), UNSURE, 0.03)) is more and bool(worth_more(effect(-size, se), UNSURE, 0.03)) is more
    assert not worth_more(effect(0.05, 0.02), WORSE, 0.03), "what looked worse and is better"


def effect(size: float, se: float) -> PairedEffect:
    return PairedEffect(np.array(size), np.array(se), np.array(5.0), 4)


def test_nights_three_times_as_rough_as_believed_stay_below_two_percent_of_alarms_of_what_was_screened() -> None:
    random = np.random.default_rng(4)
    pairs = math.sqrt(2) * 0.03 * random.normal(size=(20_000, PAIRS[-1]))
    still, wrong = np.arange(len(pairs)), 0
    for count in PAIRS:
        codes, found = judge_pairs(pairs[still, :count], 0.01, 0.03)
        wrong += int(np.isin(codes, (SLOWER, FASTER)).sum())
        still = still[(codes == UNDECIDED) & worth_more(found, WORSE, 0.03)]
    assert wrong / len(pairs) < 0.02


@pytest.mark.parametrize(
    ("planned", "counted", "count"),
    [
        (0, 0, 3),
        (3, 3, 4),
        (3, 2, 4),  # the third again
        (3, 0, 6),
        (4, 3, 5),
        (30, 29, 31),
        (30, 30, None),  # the last look
        (57, 0, 60),
        (58, 0, None),
        (59, 29, 60),
        (60, 29, None),
        (55, 25, 60),
        (56, 25, None),
    ],
)
def test_pairs_that_do_not_count_are_planned_again_up_to_twice_the_most(planned: int, counted: int, count: int | None) -> None:
    assert PAIRS[-1] == 30 and pairs_to_plan(planned, counted) == count


def test_pairs_are_planned_for_the_looks_of_the_definition() -> None:
    assert [pairs_to_plan(planned, 0, (2, 5)) for planned in (0, 8, 9)] == [2, 10, None]
