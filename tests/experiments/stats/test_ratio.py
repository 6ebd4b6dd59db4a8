"""Intervals and q-values at two to five values, against numbers worked out by hand or by scipy.stats."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from experiments.stats.estimate import Estimate, percentile
from experiments.stats.intervals import pooled_spread, repeats_interval
from experiments.stats.ratio import ratio_interval
from experiments.stats.verdict import Verdict, benjamini_hochberg, verdict

T_1, T_2, T_12 = 12.706204736, 4.302652730, 2.178812830  # two-sided 95 % quantiles of Student's t with 1, 2 and 12 degrees of freedom
Z = 1.959963985


def sure(*values: float) -> list[Estimate]:
    """Repeats whose steps show no error of their own."""
    return [Estimate(value, value, value, 0.0, math.inf) for value in values]


def with_errors(value: float, *errors: float, df: float = math.inf) -> list[Estimate]:
    return [Estimate(value, 0.0, math.inf, error, df) for error in errors]


def half_width(found: Estimate) -> float:
    """Of the interval of the logarithm, which has to be symmetric."""
    up, down = math.log(found.high / found.value), math.log(found.value / found.low)
    assert up == pytest.approx(down)
    return up


def test_relative_and_p_value_of_an_estimate() -> None:
    assert Estimate(2.0, 1.9, 2.3, 0.1, 3).relative == pytest.approx(0.1)
    assert Estimate(1.1, 1.0, 1.2, 0.04, 3).p_value == pytest.approx(2 * stats.t.sf(math.log(1.1) / 0.04, 3))
    assert Estimate(1 / 1.1, 0.8, 1.0, 0.04, 3).p_value == pytest.approx(2 * stats.t.sf(math.log(1.1) / 0.04, 3))
    assert Estimate(math.exp(Z * 0.04), 1.0, 1.2, 0.04, math.inf).p_value == pytest.approx(0.05)
    assert (Estimate(1.0, 1, 1, 0, 3).p_value, Estimate(1.1, 1, 1, 0, 3).p_value) == (1.0, 0.0)
    assert Estimate(1.0, 1, 1, 0, 3).n == 1


def test_percentiles_lie_between_order_statistics() -> None:
    assert [percentile([4, 1, 3, 2, 5], q) for q in (0, 10, 50, 90, 100)] == pytest.approx([1, 1.4, 3, 4.6, 5])
    for wrong in (-1, 101):
        with pytest.raises(ValueError, match="range"):
            percentile([1, 2], wrong)
    with pytest.raises(ValueError, match="not finite"):
        percentile([1, math.inf], 50)
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        percentile([[1, 2]], 50)


def test_two_and_three_repeats_have_students_interval() -> None:
    two = repeats_interval(sure(100, 110))
    assert two.value == pytest.approx(math.sqrt(11_000))
    assert two.se == pytest.approx(math.log(1.1) / 2)
    assert half_width(two) == pytest.approx(T_1 * math.log(1.1) / 2)
    assert (two.df, two.n) == (1, 2)
    logs = np.log([90, 100, 110])
    three = repeats_interval(sure(90, 100, 110))
    expected = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    assert (three.low, three.high) == pytest.approx(tuple(np.exp(expected)))
    assert half_width(three) == pytest.approx(T_2 * logs.std(ddof=1) / math.sqrt(3))
    assert (three.df, three.n) == (2, 3)


def test_another_level_has_another_quantile() -> None:
    assert half_width(repeats_interval(sure(100, 110), level=0.9)) == pytest.approx(6.313751515 * math.log(1.1) / 2)
    assert half_width(ratio_interval(sure(100, 110, 121), sure(100, 100, 100), level=0.9)) == pytest.approx(
        2.919985580 * math.log(1.1) / math.sqrt(3)
    )


def test_pooled_spread_is_the_within_group_error() -> None:
    # squares about each group's mean: 2 * 0.1 ** 2 and 2 * 0.1 ** 2 + 0.2 ** 2, with 1 + 2 degrees of freedom
    spread, df = pooled_spread([[1, math.exp(0.2)], [1, 1, math.exp(0.3)], [5.0]])
    assert (spread, df) == (pytest.approx(math.sqrt(0.08 / 3)), 3)
    assert pooled_spread([]) == pooled_spread([[5.0], []]) == (0.0, 0)


def test_a_pooled_spread_replaces_that_of_the_repeats() -> None:
    found = repeats_interval(sure(100, 110), spread=(0.02, 12))
    assert (found.se, found.df) == (pytest.approx(0.02 / math.sqrt(2)), 12)
    assert half_width(found) == pytest.approx(T_12 * 0.02 / math.sqrt(2))
    nothing_pooled = repeats_interval(sure(100, 110), spread=(0.0, 0))
    assert (nothing_pooled.se, nothing_pooled.df) == (pytest.approx(math.log(1.1) / 2), 1)


def test_what_the_steps_show_is_a_floor_under_the_error_of_repeats() -> None:
    alike = repeats_interval(with_errors(100, 0.03, 0.04))
    assert alike.se == pytest.approx(0.05 / 2)
    assert half_width(alike) == pytest.approx(T_1 * 0.05 / 2)
    unknown = repeats_interval(with_errors(100, 0.03, 0.04, math.inf))
    assert unknown.se == pytest.approx(0.05 / 3), "a repeat of too few steps says nothing of its error"


def test_an_interval_wider_than_the_numbers_go_is_cut() -> None:
    far = repeats_interval(sure(1e-60, 1e60))
    assert half_width(far) == pytest.approx(300)


def test_two_repeats_each_are_no_pairs_but_welchs() -> None:
    cell, baseline = (100, 110), (50, 51)
    found = ratio_interval(sure(*cell), sure(*baseline))
    a, b = math.log(1.1) / 2, math.log(1.02) / 2
    df = (a**2 + b**2) ** 2 / (a**4 + b**4)
    assert found.value == pytest.approx(math.sqrt(11_000 / 2_550))
    assert (found.se, found.df, found.n) == (pytest.approx(math.hypot(a, b)), pytest.approx(df), 2)
    assert half_width(found) == pytest.approx(stats.t.ppf(0.975, df) * math.hypot(a, b))


def unpaired(cell: Sequence[float], baseline: Sequence[float], found: Estimate) -> None:
    other = stats.ttest_ind(np.log(cell), np.log(baseline), equal_var=False)
    low, high = np.exp(other.confidence_interval(0.95))
    assert (found.low, found.high, found.p_value) == pytest.approx((low, high, other.pvalue))
    assert (found.df, found.n) == (pytest.approx(other.df), min(len(cell), len(baseline)))


def test_repeats_that_do_not_pair_are_compared_by_welchs_test() -> None:
    five, four, three = (100.0, 104.0, 99.0, 107.0, 101.0), (96.0, 97.0, 95.5, 98.0), (90.0, 97.0, 93.0)
    unpaired(five, three, ratio_interval(sure(*five), sure(*three)))
    unpaired(three, four, ratio_interval(sure(*three), sure(*four)))
    unpaired(five[:3], three, ratio_interval(sure(*five[:3]), sure(*three), paired=False))


@pytest.mark.parametrize("n", [3, 5])
def test_three_interleaved_repeats_pair(n: int) -> None:
    cell, baseline = (100.0, 104.0, 99.0, 107.0, 101.0)[:n], (96.0, 97.0, 95.0, 98.0, 97.5)[:n]
    found = ratio_interval(sure(*cell), sure(*baseline))
    other = stats.ttest_rel(np.log(cell), np.log(baseline))
    low, high = np.exp(other.confidence_interval(0.95))
    assert (found.low, found.high, found.p_value) == pytest.approx((low, high, other.pvalue))
    assert (found.df, found.n) == (n - 1, n)


def test_what_the_steps_show_is_a_floor_under_the_error_of_pairs() -> None:
    # each side's mean of three has 1 / sqrt(3) of a single trial's error
    found = ratio_interval(with_errors(110, 0.03, 0.03, 0.03), with_errors(100, 0.04, 0.04, 0.04))
    assert found.se == pytest.approx(0.05 / math.sqrt(3))
    assert half_width(found) == pytest.approx(T_2 * 0.05 / math.sqrt(3))
    part = ratio_interval(with_errors(110, 0.03, 0.03, math.inf), with_errors(100, 0.0, 0.0, 0.0))
    assert part.se == pytest.approx(0.03 * math.sqrt(2) / 3)


def test_a_ratio_with_a_pooled_spread_has_its_degrees_of_freedom() -> None:
    found = ratio_interval(sure(100, 110), sure(100, 100), spread=(0.02, 12))
    assert (found.se, found.df) == (pytest.approx(0.02), 12)  # 0.02 ** 2 / 2, twice
    assert half_width(found) == pytest.approx(T_12 * 0.02)
    uneven = ratio_interval(sure(100, 110), sure(100, 100, 100), spread=(0.03, 12))
    assert (uneven.se, uneven.df) == (pytest.approx(0.03 * math.sqrt(1 / 2 + 1 / 3)), 12)
    alone = ratio_interval(with_errors(110, 0.01, df=9), sure(100, 100), spread=(0.02, 12))
    b = 0.02 / math.sqrt(2)
    assert alone.se == pytest.approx(math.hypot(0.01, b)), "a trial without a repeat keeps the error of its steps"
    assert alone.df == pytest.approx((0.01**2 + b**2) ** 2 / (0.01**4 / 9 + b**4 / 12))


def test_single_trials_take_degrees_of_freedom_by_satterthwaite() -> None:
    found = ratio_interval(with_errors(110, 0.03, df=4), with_errors(100, 0.04, df=10))
    assert found.df == pytest.approx(0.05**4 / (0.03**4 / 4 + 0.04**4 / 10))
    assert half_width(found) == pytest.approx(stats.t.ppf(0.975, found.df) * 0.05)
    exact = ratio_interval(with_errors(110, 0.03), with_errors(100, 0.04))
    assert (exact.df, half_width(exact)) == (math.inf, pytest.approx(Z * 0.05))
    assert ratio_interval(with_errors(110, 0.0, df=4), with_errors(100, 0.0, df=10)).df == 4
    unknown = ratio_interval(with_errors(110, math.inf, df=1), with_errors(100, 0.04, df=10))
    assert (unknown.value, unknown.low, unknown.high, unknown.se, unknown.df, unknown.n) == (
        pytest.approx(1.1),
        0,
        math.inf,
        math.inf,
        1,
        1,
    )


@pytest.mark.parametrize("n", [1, 2, 3, 5, 20])
def test_q_values_are_those_of_scipy(n: int) -> None:
    random = np.random.default_rng(n)
    for _ in range(5):
        p = np.round(random.uniform(size=n) ** 2, 2)  # with ties
        assert benjamini_hochberg(list(p)) == pytest.approx(stats.false_discovery_control(p))
    for wrong in (-0.01, 1.01, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            benjamini_hochberg([0.5, wrong])
    assert benjamini_hochberg([0.0, 1.0]) == [0.0, 1.0]


def ratio(value: float, low: float, high: float, se: float = 1e-6) -> Estimate:
    return Estimate(value, low, high, se, math.inf)


def test_an_effect_of_exactly_the_minimum_counts() -> None:
    assert verdict(ratio(1.25, 1.2, 1.3), minimum=0.25) is Verdict.FASTER
    assert verdict(ratio(0.5, 0.4, 0.6), minimum=1.0) is Verdict.SLOWER  # 1 / (1 + minimum)
    assert verdict(ratio(1.249, 1.2, 1.3), minimum=0.25) is Verdict.UNDECIDED
    assert verdict(ratio(0.501, 0.4, 0.6), minimum=1.0) is Verdict.UNDECIDED


def test_a_chance_of_exactly_alpha_does_not_count() -> None:
    for q, expected in ((0.05, Verdict.UNDECIDED), (0.0499, Verdict.FASTER)):
        assert verdict(ratio(1.5, 1.4, 1.6), minimum=0.02, q_value=q) is expected
    for q, expected in ((0.01, Verdict.UNDECIDED), (0.0099, Verdict.FASTER)):
        assert verdict(ratio(1.5, 1.4, 1.6), minimum=0.02, q_value=q, alpha=0.01) is expected
    for deviations, expected in ((1.95, Verdict.UNDECIDED), (1.97, Verdict.FASTER)):  # p is 0.05 at 1.96
        found = ratio(1.5, 1.0, 2.0, se=math.log(1.5) / deviations)
        assert verdict(found, minimum=0.02) is expected


def test_same_takes_the_whole_interval_within_the_minimum() -> None:
    unsure = 1.0  # so large an error that nothing is called faster or slower
    for low, high, expected in (
        (0.801, 1.249, Verdict.SAME),
        (0.801, 1.25, Verdict.UNDECIDED),
        (0.799, 1.249, Verdict.UNDECIDED),
        (0.0, 1.249, Verdict.UNDECIDED),
        (0.801, math.inf, Verdict.UNDECIDED),
    ):
        assert verdict(ratio(1.0, low, high, unsure), minimum=0.25) is expected, (low, high)
    assert verdict(ratio(1.0, 0.5, 1.2, unsure), minimum=1.0) is Verdict.UNDECIDED  # exactly 1 / (1 + minimum)
