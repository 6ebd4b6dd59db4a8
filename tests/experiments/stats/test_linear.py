"""Intervals on the linear scale: worked examples, edges and simulated coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.stats.linear import difference_interval, mean_interval, pooled_deviation
from experiments.stats.verdict import Verdict, verdict


def test_mean_interval_is_students_of_the_values_themselves() -> None:
    found = mean_interval([0.0, 0.3, 0.6])
    assert found.value == pytest.approx(0.3) and found.linear and found.n == 3 and found.df == 2
    assert found.se == pytest.approx(0.3 / math.sqrt(3))
    assert (found.low, found.high) == (pytest.approx(0.3 - 4.302653 * found.se), pytest.approx(0.3 + 4.302653 * found.se))


def test_one_repeat_has_a_value_and_no_interval_and_none_is_an_error() -> None:
    found = mean_interval([0.0])
    assert (found.value, found.low, found.high, found.se) == (0.0, -math.inf, math.inf, math.inf)
    with pytest.raises(ValueError, match="no repeats"):
        mean_interval([])
    with pytest.raises(ValueError, match="no repeats"):
        difference_interval([1.0], [])


def test_the_pooled_deviation_counts_where_the_repeats_own_is_smaller() -> None:
    assert pooled_deviation([[1.0, 3.0], [5.0, 5.0], [9.0]]) == (pytest.approx(1.0), 2)
    assert pooled_deviation([[1.0], []]) == (0.0, 0)
    alike = mean_interval([5.0, 5.0], spread=(1.0, 2))
    assert (alike.se, alike.df) == (pytest.approx(1 / math.sqrt(2)), 2)
    wide = mean_interval([1.0, 5.0], spread=(1.0, 2))
    assert (wide.se, wide.df) == (pytest.approx(2.0), 1)


def test_differences_are_paired_from_three_interleaved_repeats_on() -> None:
    drift = [0.0, 10.0, 20.0]
    cell, baseline = [value + 1 for value in drift], drift
    paired = difference_interval(cell, baseline)
    assert (paired.value, paired.se, paired.p_value) == (1.0, 0.0, 0.0)
    apart = difference_interval(cell, baseline, paired=False)
    assert (apart.value, apart.df) == (pytest.approx(1.0), pytest.approx(4.0))  # Welch's, of two alike
    assert apart.se == pytest.approx(math.sqrt(2 * 100 / 3))
    assert difference_interval([1.0], [0.0]).p_value == 1.0


def test_no_difference_at_all_is_the_same_and_p_is_1() -> None:
    none = difference_interval([0.0] * 3, [0.0] * 3)
    assert (none.value, none.p_value, verdict(none, minimum=0.02)) == (0.0, 1.0, Verdict.SAME)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ([0.31, 0.30, 0.32], Verdict.FASTER),
        ([0.09, 0.10, 0.08], Verdict.SLOWER),
        ([0.201, 0.200, 0.202], Verdict.SAME),
        ([0.21, 0.24, 0.15], Verdict.UNDECIDED),
        ([0.2199, 0.2199, 0.2199], Verdict.SAME),  # sure, and smaller than what matters
        ([0.2201, 0.2201, 0.2201], Verdict.FASTER),
    ],
)
def test_the_smallest_effect_of_a_difference_is_absolute(cell: list[float], said: Verdict) -> None:
    assert verdict(difference_interval(cell, [0.2, 0.2, 0.2]), minimum=0.02) is said


def test_intervals_hold_what_they_should_in_95_of_100() -> None:
    random = np.random.default_rng(5)
    draws, held = 600, 0
    for values in random.normal(0.4, 0.05, (draws, 2, 3)):
        found = difference_interval(list(values[0]), list(values[1]))
        held += found.low <= 0 <= found.high
    assert 0.92 < held / draws < 0.98
