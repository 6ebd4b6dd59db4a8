"""Intervals and q-values at two to five values, against numbers worked out by hand or by scipy.stats."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from experiments.stats.estimate import Estimate, percentile
from experiments.stats.intervals import block_length, throughput_interval
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


def test_percentiles_lie_between_order_statistics() -> None:
    assert [percentile([4, 1, 3, 2, 5], q) for q in (0, 10, 50, 90, 100)] == pytest.approx([1, 1.4, 3, 4.6, 5])
    for wrong in (-1, 101):
        with pytest.raises(ValueError, match="range"):
            percentile([1, 2], wrong)
    with pytest.raises(ValueError, match="not finite"):
        percentile([1, math.inf], 50)
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        percentile([[1, 2]], 50)


def test_three_steps_say_nothing_of_their_spread_and_four_do() -> None:
    three = throughput_interval([8, 8, 8], [1, 1.1, 0.9])
    assert (three.value, three.low, three.high, three.se, three.df, three.n) == (pytest.approx(8), 0, math.inf, math.inf, 1, 1)
    four = throughput_interval([8, 8, 8, 8], [1, 1.1, 0.9, 1.2])
    assert 0 < four.se < 1 and four.df == 3
    assert four.low == pytest.approx(8 / 1.2), "so few steps are as wide as they can be drawn"
    assert four.high == pytest.approx(8 / 0.9)
    with pytest.raises(ValueError, match="more than 0"):
        throughput_interval([0, 0], [1, 1])


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_throughput_interval_is_the_bootstrap_it_is_said_to_be(level: float) -> None:
    """At least a twelfth of the series to a block, around the end; percentiles of the level that t with few blocks asks (Hesterberg)."""
    random = np.random.default_rng(12)
    times, samples = 0.1 * np.exp(0.05 * random.normal(size=52)), random.integers(6, 9, 52)
    length, blocks = 5, 11  # both ceilings: of 52 / 12, as white noise alone would have blocks of 1, and of 52 / 5
    assert block_length(samples - samples.sum() / times.sum() * times) < length
    draws = []
    for starts in np.random.default_rng(7).integers(0, 52, (400, blocks), dtype=np.int32):
        picked = [(start + offset) % 52 for start in starts for offset in range(length)]
        draws.append(samples[picked].sum() / times[picked].sum())
    tail = stats.norm.sf(stats.t.ppf((1 + level) / 2, 9) * math.sqrt(10 / 9))
    found = throughput_interval(samples, times, level=level, draws=400, seed=7)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [tail, 1 - tail])))
    assert (found.value, found.df) == (pytest.approx(samples.sum() / times.sum()), 9)
    assert found.se == pytest.approx(np.log(draws).std() * math.sqrt(10 / 9))
    assert found != throughput_interval(samples, times, level=level, draws=400, seed=8)


def test_blocks_are_as_long_as_the_correlation_asks() -> None:
    noise = lfilter([1], [1, -0.9], np.random.default_rng(11).normal(size=400))
    times = 0.1 * np.exp(0.01 * noise)
    samples = np.full(400, 8.0)
    length = block_length(samples - 3200 / times.sum() * times)
    assert length < 400 / 12
    assert throughput_interval(samples, times, draws=50).df == 400 // 34 - 1
    times = 0.1 * np.exp(0.01 * lfilter([1], [1, -0.97], np.random.default_rng(11).normal(size=60)))
    longer = block_length(samples[:60] - 480 / times.sum() * times)
    assert longer > 5 and throughput_interval(samples[:60], times, draws=50).df == 60 // longer - 1
    in_step = throughput_interval(80 * times, times, draws=50)
    assert (in_step.df, in_step.se) == (60 // 5 - 1, pytest.approx(0, abs=1e-12)), "long steps with as many more samples tell one rate"


@pytest.mark.parametrize(("n", "phi", "expected"), [(100, 0.9, 12.973), (400, 0.6, 9.898), (400, 0.9, 19.390), (1000, 0.6, 16.390)])
def test_block_length_is_that_of_another_implementation(n: int, phi: float, expected: float) -> None:
    """`optimal_block_length(series)["circular"]` of the package arch 8.0, which does not round."""
    series = lfilter([1], [1, -phi], np.random.default_rng(11).normal(size=n))
    assert block_length(series) == round(expected)


def plain_block_length(series: np.ndarray) -> float:
    """Politis & White (2004), section 3.2, corrected by Patton, Politis & White (2009), with sums written out; not rounded."""
    n = len(series)
    rest = series - series.mean()
    covariance = [float(np.dot(rest[: n - lag], rest[lag:])) / n for lag in range(n)]
    most = min(n - 1, math.ceil(math.sqrt(n)) + max(5, math.ceil(math.log10(n))))
    bound = 2 * math.sqrt(math.log10(n) / n)
    loud = [lag for lag in range(1, most + 1) if abs(covariance[lag] / covariance[0]) >= bound]
    last = next((lag for lag in range(most - 4) if not any(lag < at <= lag + 5 for at in loud)), loud[-1] if loud else 0)
    slope, level = 0.0, covariance[0]
    for lag in range(1, min(2 * last, most) + 1):
        window = 1.0 if lag <= last else 2 * (1 - lag / (2 * last))
        slope += 2 * window * lag * covariance[lag]
        level += 2 * window * covariance[lag]
    return float((2 * slope**2 / (4 / 3 * level**2)) ** (1 / 3) * n ** (1 / 3)) if level > 0 else 1.0


@pytest.mark.parametrize("n", [4, 5, 6, 8, 12, 25, 60, 150])
def test_block_length_against_its_definition_written_out(n: int) -> None:
    for seed, phi in itertools.product(range(4), (0.0, 0.3, 0.5, 0.7, 0.9, 0.99, -0.4, -0.8, -0.95)):
        series = lfilter([1], [1, -phi], np.random.default_rng(seed).normal(size=n))
        most = max(1, math.ceil(min(3 * math.sqrt(n), n / 3)))
        assert block_length(series) == min(most, max(1, round(plain_block_length(series)))), (seed, phi)


def test_block_length_has_bounds() -> None:
    for n, waves, expected in ((13, 4.5, 5), (30, 4, 10), (200, 5, 43)):  # ceil(13 / 3), 30 / 3, ceil(3 * sqrt(200))
        series = np.sin(np.arange(n) * 2 * np.pi * waves / n)
        assert plain_block_length(series) > expected
        assert block_length(series) == expected
    assert block_length([5.0] * 20) == 1
    assert block_length([5.0]) == 1


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
