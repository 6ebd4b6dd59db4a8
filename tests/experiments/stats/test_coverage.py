"""Shares of intervals that are right, and what is known of a pair from all others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.stats.coverage import (
    Share,
    covered_by_steps,
    covers_no_change,
    rate_interval,
    share_of,
    spreads_without_each,
    times_apart,
)
from experiments.stats.estimate import Estimate
from experiments.stats.spread import Spread


def test_rates_have_clopper_and_pearsons_interval() -> None:
    assert rate_interval(1, 20) == pytest.approx((0.0012650895, 0.2487327763))  # beta(1, 20) and beta(2, 19)
    assert rate_interval(3, 5) == pytest.approx((stats.beta.ppf(0.025, 3, 3), stats.beta.ppf(0.975, 4, 2)))
    assert rate_interval(2, 2) == pytest.approx((0.025**0.5, 1.0))
    assert rate_interval(0, 20) == pytest.approx((0.0, 0.1684), abs=1e-4)  # 1 - 0.025 ** (1 / 20)
    assert rate_interval(1, 20, level=0.9) == pytest.approx((stats.beta.ppf(0.05, 1, 20), stats.beta.ppf(0.95, 2, 19)))
    assert rate_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="k"):
        rate_interval(3, 2)


def test_shares_add_up_and_know_their_interval() -> None:
    share = share_of([True, False, True, True])
    assert share == Share(hits=3, of=4) and share.value == 0.75
    assert share + Share(hits=1, of=1) == Share(hits=4, of=5)
    assert share.interval == rate_interval(3, 4)
    assert (Share().value, Share().interval) == (None, (0.0, 1.0))


@pytest.mark.parametrize(
    ("low", "high", "linear", "covered"),
    [
        (0.9, 1.1, False, True),
        (1.0, 1.1, False, True),
        (0.9, 1.0, False, True),
        (1.001, 1.1, False, False),
        (0.9, 0.999, False, False),
        (-0.1, 0.1, True, True),
        (0.0, 0.1, True, True),
        (0.9, 1.1, True, False),
    ],
)
def test_an_interval_covers_no_change(low: float, high: float, linear: bool, covered: bool) -> None:
    assert covers_no_change(Estimate((low + high) / 2, low, high, 0.05, 4, linear=linear)) is covered


def test_the_spread_for_a_pair_comes_from_all_others() -> None:
    a, b = [0.0, 0.2, 0.4, 9.0], [1.0, 1.0, 1.6, -9.0]
    spreads = spreads_without_each(a, b)
    # without the last: a deviates by -0.2, 0, 0.2, b by -0.2, -0.2, 0.4; 2 (n - 2) = 4 degrees of freedom
    assert spreads[3] is not None and (spreads[3].sd, spreads[3].df) == pytest.approx((math.sqrt((0.08 + 0.24) / 4), 4))
    assert all(spread is not None and spread.sd > 3 for spread in spreads[:3])
    assert spreads_without_each([0.0, 1.0], [0.0, 1.0]) == [None, None]
    assert spreads_without_each([0.0, 1.0, 1.0], [0.0, 1.0, 1.0])[0] == Spread(0.0, 2)
    with pytest.raises(ValueError, match="2 values for 3"):
        spreads_without_each([0.0, 1.0], [0.0, 1.0, 2.0])


def test_intervals_of_steps_alone() -> None:
    half = 1.959964 * math.hypot(0.03, 0.04)
    share = covered_by_steps([0.0, 0.0, 0.0], [half - 1e-6, half + 1e-6, -half + 1e-6], [0.03] * 3, [0.04] * 3)
    assert share == Share(hits=2, of=3)
    assert covered_by_steps([], [], [], []) == Share()


def test_how_many_times_further_trials_lie_apart_than_their_steps_suggest() -> None:
    assert times_apart([0.0, 0.2], [1.0, 1.2], [0.01, 0.07]) == pytest.approx(math.sqrt(0.02) / 0.05)
    assert times_apart([0.0], [1.0], [0.01]) is None
    assert times_apart([0.0, 0.2], [1.0, 1.2], [0.0]) is None
    assert times_apart([0.0, 0.2], [1.0, 1.2], []) is None


def test_leaving_a_pair_out_gives_its_interval_the_coverage_that_it_claims() -> None:
    random = np.random.default_rng(4)
    hits = 0
    for _ in range(400):
        a, b = random.normal(size=(2, 6))
        spread = spreads_without_each(a, b)[2]
        assert spread is not None
        hits += abs(a[2] - b[2]) <= stats.t.ppf(0.975, spread.df) * spread.sd * math.sqrt(2)
    low, high = rate_interval(hits, 400, level=0.999)
    assert low < 0.95 < high
