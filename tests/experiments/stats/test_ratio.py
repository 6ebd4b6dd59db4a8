"""Intervals and q-values at two to five values, against numbers worked out by hand or by scipy.stats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.stats.estimate import Estimate, estimate_from_log, percentile
from experiments.stats.verdict import Verdict, among_many, benjamini_hochberg, verdict

T_1, T_2, T_12 = 12.706204736, 4.302652730, 2.178812830  # two-sided 95 % quantiles of Student's t with 1, 2 and 12 degrees of freedom
Z = 1.959963985


def test_relative_and_p_value_of_an_estimate() -> None:
    assert Estimate(2.0, 1.9, 2.3, 0.1, 3).relative == pytest.approx(0.1)
    assert Estimate(1.1, 1.0, 1.2, 0.04, 3).p_value == pytest.approx(2 * stats.t.sf(math.log(1.1) / 0.04, 3))
    assert Estimate(1 / 1.1, 0.8, 1.0, 0.04, 3).p_value == pytest.approx(2 * stats.t.sf(math.log(1.1) / 0.04, 3))
    assert Estimate(math.exp(Z * 0.04), 1.0, 1.2, 0.04, math.inf).p_value == pytest.approx(0.05)
    assert (Estimate(1.0, 1, 1, 0, 3).p_value, Estimate(1.1, 1, 1, 0, 3).p_value) == (1.0, 0.0)
    assert Estimate(1.0, 1, 1, 0, 3).n == 1


def test_the_inverse_of_a_comparison() -> None:
    ratio = estimate_from_log(math.log(1.25), 0.01, 5, 3, 0.95)
    inverse = ratio.inverse()
    assert (inverse.value, inverse.low, inverse.high) == (pytest.approx(0.8), 1 / ratio.high, 1 / ratio.low)
    assert (inverse.se, inverse.df, inverse.n, inverse.linear) == (0.01, 5, 3, False)
    assert inverse.p_value == pytest.approx(ratio.p_value, rel=1e-9)
    unknown = estimate_from_log(math.log(1.25), math.inf, 1, 1, 0.95).inverse()
    assert (unknown.value, unknown.low, unknown.high) == (pytest.approx(0.8), 0.0, math.inf)
    linear = Estimate(0.5, 0.25, 1.0, 0.125, 5, 3, linear=True)
    assert linear.inverse() == Estimate(-0.5, -1.0, -0.25, 0.125, 5, 3, linear=True)


def test_percentiles_lie_between_order_statistics() -> None:
    assert [percentile([4, 1, 3, 2, 5], q) for q in (0, 10, 50, 90, 100)] == pytest.approx([1, 1.4, 3, 4.6, 5])
    for wrong in (-1, 101):
        with pytest.raises(ValueError, match="range"):
            percentile([1, 2], wrong)
    with pytest.raises(ValueError, match="not finite"):
        percentile([1, math.inf], 50)
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        percentile([[1, 2]], 50)


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
    for q, expected in ((0.025, Verdict.UNDECIDED), (0.0249, Verdict.FASTER)):
        assert verdict(ratio(1.5, 1.4, 1.6), minimum=0.02, q_value=q) is expected
    for deviations, expected in ((2.80, Verdict.UNDECIDED), (2.81, Verdict.FASTER)):  # p is 0.005 at 2.807
        found = ratio(1.5, 1.0, 2.0, se=math.log(1.5) / deviations)
        assert verdict(found, minimum=0.02) is expected
        assert verdict(found, minimum=0.02, q_value=1e-9) is expected, "each comparison has to be sure by itself"


@pytest.mark.parametrize(("cells", "df", "t"), [(3, 2.0, 20.0), (5, 4.0, 8.0), (12, math.inf, 4.0)])
def test_a_pair_picked_from_many_has_the_chance_of_their_range(cells: int, df: float, t: float) -> None:
    found = Estimate(math.exp(0.01 * t), 1.0, 2.0, 0.01, df)
    expected = stats.studentized_range.sf(t * math.sqrt(2), cells, min(df, 1e5))
    assert among_many(found, cells) == pytest.approx(float(expected), rel=1e-6)
    assert among_many(found, 2) == found.p_value < among_many(found, cells)


def test_what_is_not_sure_alone_is_not_looked_at_among_many() -> None:
    unsure = Estimate(math.exp(0.02), 1.0, 2.0, 0.01, math.inf)
    assert among_many(unsure, 12) == unsure.p_value == pytest.approx(0.0455, abs=1e-4)
    assert among_many(Estimate(1.2, 1.2, 1.2, 0.0, 2), 12) == 0.0


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
