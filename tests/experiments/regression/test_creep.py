"""A change too small for any night, over a segment of nights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.regression.creep import LEAST_NIGHTS, Trend, trend

NOISE = np.array([0.4, -0.9, 0.1, 1.2, -0.3, -0.8, 0.7, 0.2, -1.1, 0.6, 0.9, -1.0]) * 0.004


def test_the_rise_is_that_of_a_line_with_an_error_for_what_nights_share() -> None:
    nights = -0.003 * np.arange(12) + NOISE
    line = stats.linregress(np.arange(12), nights)
    rest = nights - line.intercept - line.slope * np.arange(12)
    r = min(max((float(rest[1:] @ rest[:-1] / (rest @ rest)) + 2 / 12) / (1 - 4 / 12), 0.0), 0.9)
    found = trend(nights)
    assert float(found.change) == pytest.approx(11 * line.slope)
    assert float(found.se) == pytest.approx(11 * line.stderr * math.sqrt((1 + r) / (1 - r)))
    assert float(found.df) == 10


def test_nights_that_follow_each_other_say_less() -> None:
    wander = np.repeat([0.004, -0.004, 0.004, -0.004], 3)
    mixed = np.tile([0.004, -0.004], 6)
    assert float(trend(wander).se) > 1.5 * float(trend(mixed).se)


def test_nights_that_stay_together_share_most_and_a_line_without_noise_has_an_error() -> None:
    steps = np.repeat([0.0, 0.01, 0.0, 0.01], 10)
    assert float(trend(steps).se) == pytest.approx(0.01077, abs=1e-5), "neighbours are taken to share 0.9 at most"
    exact = trend(np.arange(12) * -0.002)
    assert (float(exact.change), float(exact.se)) == (pytest.approx(-0.022), 5e-4), "what clocks and rounding may do"


def test_missing_nights_are_left_out_and_too_few_say_nothing() -> None:
    nights = -0.003 * np.arange(12) + NOISE
    nights[4] = np.nan
    kept = np.delete(np.arange(12), 4)
    assert float(trend(nights).change) == pytest.approx(11 * stats.linregress(kept, nights[kept]).slope)
    assert np.isnan(trend(nights[:LEAST_NIGHTS]).change), "one of them is missing"
    assert np.isfinite(trend(nights[: LEAST_NIGHTS + 1]).change)
    assert LEAST_NIGHTS == 10, "as docs/nights.md says"
    assert not trend(nights[:5]).suspected(0.03) and not trend(nights[:5]).shown(0.03)


def test_what_the_canary_shares_is_no_creep() -> None:
    node = -0.004 * np.arange(12)
    assert float(trend(node + NOISE).change) < -0.04
    assert abs(float(trend(node + NOISE, node).change)) < 0.01


@pytest.mark.parametrize(("share", "expected"), [(1.001, True), (0.999, False)])
def test_half_of_what_matters_is_suspected_and_all_of_it_shown(share: float, expected: bool) -> None:
    edge, df, small = math.log(1.03), np.array(20.0), np.array(0.001)
    assert bool(Trend(np.array(-edge / 2 * share), small, df).suspected(0.03)) is expected
    assert bool(Trend(np.array(-edge * share), small, df).shown(0.03)) is expected
    assert not Trend(np.array(0.1), small, df).suspected(0.03), "what becomes faster does not creep"


@pytest.mark.parametrize(("more", "expected"), [(1.001, True), (0.999, False)])
def test_the_levels_of_suspicion_and_of_proof(more: float, expected: bool) -> None:
    df, se = np.array(20.0), np.array(0.02)
    assert bool(Trend(-se * stats.t.isf(0.05, 20) * more, se, df).suspected(0.03)) is expected
    assert bool(Trend(-se * stats.t.isf(0.005, 20) * more, se, df).shown(0.03)) is expected


def test_the_stated_power_is_the_power() -> None:
    random = np.random.default_rng(5)
    noise = 0.01 * random.normal(size=(4000, 20))
    smallest = float(np.median(trend(noise).detectable(0.03)))
    found = trend(noise - smallest * np.linspace(0, 1, 20)).shown(0.03).mean()
    assert 0.9 < found < 0.99
    assert trend(noise).shown(0.001).mean() < 0.012
