"""A cell's own interval and ratios of trials that share no rounds, against scipy.stats and numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.stats.estimate import LEVEL, Estimate, estimate_from_mean
from experiments.stats.repeats import paired_ratio, ratio_interval, repeats_interval
from experiments.stats.spread import Spread

T_1, T_2, T_8 = 12.706204736, 4.302652730, 2.306004135  # two-sided 95 % quantiles of Student's t


def sure(*values: float) -> list[Estimate]:
    """Repeats whose steps show no error of their own."""
    return [Estimate(value, value, value, 0.0, math.inf) for value in values]


def scores(*values: float) -> list[Estimate]:
    return [estimate_from_mean(value, math.inf, 1, 1, LEVEL) for value in values]


def half_width(found: Estimate) -> float:
    """Of the interval of the logarithm, which has to be symmetric."""
    up, down = math.log(found.high / found.value), math.log(found.value / found.low)
    assert up == pytest.approx(down)
    return up


def test_two_and_three_repeats_have_students_interval() -> None:
    two = repeats_interval(sure(100, 110))
    assert two.value == pytest.approx(math.sqrt(11_000))
    assert half_width(two) == pytest.approx(T_1 * math.log(1.1) / 2)
    assert (two.se, two.df, two.n) == (pytest.approx(math.log(1.1) / 2), 1, 2)
    logs = np.log([90, 100, 110])
    three = repeats_interval(sure(90, 100, 110))
    assert (three.low, three.high) == pytest.approx(tuple(np.exp(stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs)))))
    assert half_width(repeats_interval(sure(100, 110), level=0.9)) == pytest.approx(6.313751515 * math.log(1.1) / 2)


def test_one_repeat_is_unbounded_unless_its_spread_is_known() -> None:
    alone = repeats_interval([Estimate(100.0, 99.0, 101.0, 0.005, math.inf)])
    assert (alone.low, alone.high, alone.se, alone.n) == (0.0, math.inf, math.inf, 1), "steps do not show what differs between trials"
    known = repeats_interval([Estimate(100.0, 99.0, 101.0, 0.005, math.inf)], known=Spread(0.02, 8))
    assert (known.value, known.se, known.df) == (pytest.approx(100.0), 0.02, 8)
    assert half_width(known) == pytest.approx(T_8 * 0.02)
    with pytest.raises(ValueError, match="no repeats"):
        repeats_interval([])


def test_what_the_steps_show_is_a_floor() -> None:
    found = repeats_interval([Estimate(100, 0, math.inf, error, 9) for error in (0.03, 0.04, math.inf)])
    assert found.se == pytest.approx(0.05 / 3), "a repeat of too few steps says nothing of its error"


def test_an_interval_wider_than_the_numbers_go_is_cut() -> None:
    assert half_width(repeats_interval(sure(1e-60, 1e60))) == pytest.approx(300)


def test_scores_have_the_arithmetic_mean() -> None:
    found = repeats_interval(scores(0.0, 0.3, 0.6))
    assert (found.value, found.se, found.df, found.linear) == (pytest.approx(0.3), pytest.approx(0.3 / math.sqrt(3)), 2, True)
    assert found.half_width == pytest.approx(T_2 * 0.3 / math.sqrt(3))
    assert math.isinf(repeats_interval(scores(0.5)).high)


@pytest.mark.parametrize(
    ("one", "other"), [((100.0, 104.0, 99.0), (96.0, 97.0)), ((5.0, 7.0), (5.5, 6.0)), ((1.0, 2.0, 3.0), (4.0, 4.5, 7.0))]
)
def test_trials_that_share_no_rounds_are_compared_by_welchs_test(one: tuple[float, ...], other: tuple[float, ...]) -> None:
    found = ratio_interval(sure(*one), sure(*other))
    welch = stats.ttest_ind(np.log(one), np.log(other), equal_var=False)
    assert (found.low, found.high) == pytest.approx(tuple(np.exp(welch.confidence_interval(0.95))))
    assert (found.p_value, found.df, found.n) == (pytest.approx(welch.pvalue), pytest.approx(welch.df), min(len(one), len(other)))
    difference = ratio_interval(scores(*one), scores(*other))
    plain = stats.ttest_ind(one, other, equal_var=False)
    assert difference.linear and difference.value == pytest.approx(np.mean(one) - np.mean(other))
    assert (difference.p_value, difference.df) == (pytest.approx(plain.pvalue), pytest.approx(plain.df))


def test_without_any_spread_the_degrees_of_freedom_are_the_fewer_of_the_two() -> None:
    found = ratio_interval(sure(2, 2, 2), sure(1, 1))
    assert (found.value, found.se, found.df, found.n) == (2, 0, 1, 2)


def test_a_side_of_one_trial_takes_the_spread_that_is_known() -> None:
    unknown = ratio_interval(sure(110.0), sure(100.0, 101.0))
    assert (unknown.value, unknown.low, unknown.high, unknown.n) == (pytest.approx(110 / math.sqrt(10_100)), 0.0, math.inf, 1)
    found = ratio_interval(sure(110.0), sure(100.0, 101.0), known=(Spread(0.02, 8), Spread(9.0, 9)))
    own = math.log(1.01) / 2
    assert found.se == pytest.approx(math.hypot(0.02, own)), "the other side has repeats"
    assert found.df == pytest.approx(found.se**4 / (0.02**4 / 8 + own**4))


def test_pairs_have_the_paired_t_interval() -> None:
    a, b = (100.0, 104.0, 99.0), (96.0, 97.0, 95.0)
    found, paired = paired_ratio(a, b), stats.ttest_rel(np.log(a), np.log(b))
    assert (found.low, found.high) == pytest.approx(tuple(np.exp(paired.confidence_interval(0.95))))
    assert (found.p_value, found.df, found.n) == (pytest.approx(paired.pvalue), 2, 3)
    assert math.isinf(paired_ratio([2.0], [1.0]).high)
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0, 2.0], [1.0])


def test_a_cells_own_interval_holds_the_truth_in_95_of_100() -> None:
    random = np.random.default_rng(4)
    for repeats in (2, 3, 5):
        found = [repeats_interval(sure(*np.exp(0.02 * random.normal(size=repeats)))) for _ in range(400)]
        assert 0.925 < sum(one.low <= 1 <= one.high for one in found) / 400 < 0.975, repeats
