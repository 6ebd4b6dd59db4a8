"""A change too small for any night, over a segment of nights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.bench_creep import by_estimate, by_trend, told
from experiments.regression.creep import LEAST_NIGHTS, Trend, trend

NOISE = np.array([0.4, -0.9, 0.1, 1.2, -0.3, -0.8, 0.7, 0.2, -1.1, 0.6, 0.9, -1.0]) * 0.004


def of_one_line(change: float, se: float, df: float = 20.0) -> Trend:
    return Trend(np.ones(1), np.array([change]), np.array([se]), np.array(df))


@pytest.mark.parametrize("missing", [[], [4, 5]])
def test_each_line_is_that_of_generalised_least_squares_and_weighted_by_its_restricted_likelihood(missing: list[int]) -> None:
    """Each model by hand: the nights whitened by their Cholesky factor, then ordinary least squares; the likelihood of contrasts."""
    nights = -0.003 * np.arange(12) + NOISE
    nights[missing] = np.nan
    kept = np.flatnonzero(np.isfinite(nights))
    n, design = kept.size, np.stack([np.ones(kept.size), kept], axis=1)
    contrasts = np.linalg.svd(design)[0][:, 2:].T  # nothing of a line is in them
    likelihood = []
    found = trend(nights)
    for number, shared in enumerate([0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98]):
        covariance = shared ** np.abs(np.subtract.outer(kept, kept))
        white = np.linalg.inv(np.linalg.cholesky(covariance))
        line, squares, *_ = np.linalg.lstsq(white @ design, white @ nights[kept])
        error = math.sqrt(float(squares[0]) / (n - 2) * np.linalg.inv((white @ design).T @ (white @ design))[1, 1])
        assert (found.changes[number], found.errors[number]) == (pytest.approx(11 * line[1]), pytest.approx(11 * error))
        of_contrasts, values = contrasts @ covariance @ contrasts.T, contrasts @ nights[kept]
        scale = float(values @ np.linalg.solve(of_contrasts, values))
        likelihood.append((0.6 if number == 0 else 0.4 / 7) * np.linalg.det(of_contrasts) ** -0.5 * scale ** (1 - n / 2))
    assert found.weight == pytest.approx(np.array(likelihood) / sum(likelihood))
    assert float(found.change) == pytest.approx(float(found.weight @ found.changes))
    assert float(found.df) == n - 2


def test_nights_that_follow_each_other_say_less() -> None:
    wander = np.repeat([0.004, -0.004, 0.004, -0.004], 3)
    mixed = np.tile([0.004, -0.004], 6)
    wide, narrow = (float(trend(nights).detectable(0.0)) for nights in (wander, mixed))
    assert wide > 1.5 * narrow


def test_a_line_without_noise_has_an_error() -> None:
    exact = trend(np.arange(12) * -0.002)
    assert float(exact.change) == pytest.approx(-0.022)
    assert exact.errors.tolist() == [5e-4] * 8, "what clocks and rounding may do"


@pytest.mark.parametrize(("nights", "before"), [(10, 0.049), (15, 0.053), (20, 0.048), (30, 0.039)])
def test_nights_that_share_as_much_as_0_8_tell_no_creep_more_often_than_promised(nights: int, before: float) -> None:
    """docs/nights.md promises 1 %, of which 4,000 segments show at most 1.4 %. `before`: of an error by an estimated correlation."""
    assert told(by_trend, 0.8, nights, 4000) < 0.014
    assert told(by_trend, 0.5, nights, 4000) < 0.01
    assert told(by_estimate, 0.8, nights, 4000) == pytest.approx(before, abs=0.012)


def test_a_creep_of_independent_nights_is_still_shown() -> None:
    assert told(by_trend, 0.0, 30, 2000, loss=4.0) > 0.9
    assert told(by_trend, 0.0, 60, 2000, loss=4.0) > 0.99


def test_missing_nights_are_left_out_and_too_few_say_nothing() -> None:
    nights = -0.003 * np.arange(12) + NOISE
    nights[4] = np.nan
    kept = np.delete(np.arange(12), 4)
    assert float(trend(nights).changes[0]) == pytest.approx(11 * stats.linregress(kept, nights[kept]).slope)
    assert np.isnan(trend(nights[:LEAST_NIGHTS]).change), "one of them is missing"
    assert np.isfinite(trend(nights[: LEAST_NIGHTS + 1]).change)
    assert LEAST_NIGHTS == 10, "as docs/nights.md says"
    assert not trend(nights[:5]).suspected(0.03) and not trend(nights[:5]).shown(0.03)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 12)])
def test_no_nights_and_no_cells_say_nothing(shape: tuple[int, ...]) -> None:
    found = trend(np.zeros(shape))
    assert found.change.shape == found.df.shape == shape[:-1] and np.isnan(found.change).all()
    assert not found.suspected(0.03).any() and not found.shown(0.03).any()


def test_nights_that_are_all_the_same_do_not_creep() -> None:
    found = trend(np.full(LEAST_NIGHTS, 1.2345))
    assert float(found.change) == pytest.approx(0.0, abs=1e-12)
    assert not found.suspected(0.03) and not found.shown(0.03)
    assert 0.0296 < float(found.detectable(0.03)) < 0.031, "what matters, and a little for what clocks and rounding may do"


def test_what_the_canary_shares_is_no_creep() -> None:
    node = -0.004 * np.arange(12)
    assert float(trend(node + NOISE).change) < -0.04
    assert abs(float(trend(node + NOISE, node).change)) < 0.01


@pytest.mark.parametrize(("share", "expected"), [(1.001, True), (0.999, False)])
def test_half_of_what_matters_is_suspected_and_all_of_it_shown(share: float, expected: bool) -> None:
    edge, small = math.log(1.03), 0.001
    assert bool(of_one_line(-edge / 2 * share, small).suspected(0.03)) is expected
    assert bool(of_one_line(-edge * share, small).shown(0.03)) is expected
    assert not of_one_line(0.1, small).suspected(0.03), "what becomes faster does not creep"


@pytest.mark.parametrize(("more", "expected"), [(1.001, True), (0.999, False)])
def test_the_levels_of_suspicion_and_of_proof(more: float, expected: bool) -> None:
    se = 0.02
    assert bool(of_one_line(-se * stats.t.isf(0.05, 20) * more, se).suspected(0.03)) is expected
    assert bool(of_one_line(-se * stats.t.isf(0.005, 20) * more, se).shown(0.03)) is expected


def test_lines_count_by_their_weight() -> None:
    both = Trend(np.array([0.9, 0.1]), np.array([-0.05, -0.06]), np.array([0.01, 0.04]), np.array(10.0))
    tail = 0.9 * stats.t.cdf(-5, 10) + 0.1 * stats.t.cdf(-1.5, 10)
    assert float(both.change) == pytest.approx(-0.051)
    assert not both.shown(0.03, alpha=2 * tail * 0.999) and both.shown(0.03, alpha=2 * tail * 1.001)


def test_what_is_detectable_reaches_beyond_the_threshold_by_the_power() -> None:
    """Two-sided at 1 %, 95 % of the errors are smaller on the side of a loss; or beyond what matters, where that is more."""
    se = 0.02
    level, power = stats.t.isf(0.005, 20), stats.t.isf(0.05, 20)
    assert float(of_one_line(0.0, se).detectable(0.03)) == pytest.approx((level + power) * se)
    assert float(of_one_line(0.0, se).detectable(0.2)) == pytest.approx(math.log(1.2) + power * se)


def test_the_stated_power_is_the_power() -> None:
    """Of each segment, with the loss that is stated for it."""
    random = np.random.default_rng(5)
    noise = 0.01 * random.normal(size=(600, 20))
    smallest = trend(noise).detectable(0.03)
    found = trend(noise - smallest[:, None] * np.linspace(0, 1, 20)).shown(0.03).mean()
    assert 0.9 < found < 0.99
    assert np.isnan(trend(noise[0, :9]).detectable(0.03))


def test_segments_with_other_nights_missing_are_judged_at_once_as_alone() -> None:
    random = np.random.default_rng(6)
    nights = 0.01 * random.normal(size=(2, 3, 14))
    nights[0, 1, 3], nights[1, 2, :5] = np.nan, np.nan
    many = trend(nights)
    for place in np.ndindex(2, 3):
        assert many.change[place] == pytest.approx(float(trend(nights[place]).change), nan_ok=True)
    assert np.isnan(many.change[1, 2]) and np.isfinite(many.change).sum() == 5
