"""Tonight against a baseline in numbers worked out by hand: one cell, a handful of nights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.regression.effect import RESOLUTION, NightEffect, night_effect, night_value

NIGHTS = np.array([0.0, 0.01, -0.01, 0.02, -0.02])  # their level is 0, the sum of their squares 0.001
D = 0.004  # a night's three trials lie at -D, 0 and +D about its middle
CHI2 = (1 - 1 / 9) ** 3  # Wilson and Hilferty's median of chi-square with 2 degrees of freedom, over 2
SPREAD = math.sqrt(0.001 / 4)
WITHIN = D / math.sqrt(CHI2)
TRIMMED = 1.19  # variance of a level that leaves out nights, from four on, over that of a mean


def trials(middles: np.ndarray, half: float = D) -> np.ndarray:
    return np.asarray(middles)[..., None] + np.array([-half, 0.0, half])


def test_a_night_without_its_lowest_and_highest_quarter() -> None:
    for count, dropped in ((1, 0), (2, 0), (3, 1), (4, 1), (7, 1), (8, 2), (11, 2), (12, 3)):
        values = 2.0 ** np.arange(count)
        assert night_value(values) == pytest.approx(values[dropped : count - dropped].mean()), count


def test_the_error_of_a_night_by_hand() -> None:
    found = night_effect(trials(NIGHTS), [0.03])
    between = math.sqrt(SPREAD**2 - WITHIN**2 * 1.35 / 3)  # a median of three costs 1.35 of a mean of three
    assert float(found.within) == pytest.approx(WITHIN)
    assert float(found.between) == pytest.approx(between)
    assert float(found.effect) == float(found.raw) == pytest.approx(0.03)
    # the night's own difference, tonight's one trial, the baseline's location over five nights
    se = math.sqrt(between**2 + WITHIN**2 + SPREAD**2 * TRIMMED / 5)
    assert float(found.se) == pytest.approx(se)
    assert (float(found.df), float(found.share)) == (4, 0)
    assert float(found.p_value) == pytest.approx(2 * stats.t.sf(0.03 / se, 4))
    assert float(night_effect(trials(NIGHTS), [-0.03]).p_value) == pytest.approx(2 * stats.t.sf(0.03 / se, 4))


@pytest.mark.parametrize(("repeats", "cost"), [(2, 1.0), (3, 1.35), (4, 1.19), (8, 1.19)])
def test_more_trials_tonight_and_what_trimming_costs(repeats: int, cost: float) -> None:
    found = night_effect(trials(NIGHTS), [0.03] * repeats)  # alike, so no rougher than the baseline
    between = math.sqrt(SPREAD**2 - WITHIN**2 * 1.35 / 3)
    assert float(found.se) == pytest.approx(math.sqrt(between**2 + WITHIN**2 * cost / repeats + SPREAD**2 * TRIMMED / 5))


def test_a_rougher_night_counts_half() -> None:
    found = night_effect(trials(NIGHTS), [0.02, 0.03, 0.04])
    assert float(found.within) == pytest.approx(math.sqrt((WITHIN**2 + 0.01**2) / 2))
    two = night_effect(trials(NIGHTS), [0.02, 0.04])
    assert float(two.within) == pytest.approx(WITHIN), "two trials do not say how rough a night is"
    alone = night_effect(NIGHTS[:, None], [0.02, 0.03, 0.04])
    assert float(alone.within) == pytest.approx(0.01), "nights of one trial say nothing, so tonight's alone"
    assert float(night_effect(NIGHTS[:, None], [0.02, 0.04]).within) == 0


def test_one_slow_trial_of_five_does_not_make_a_rough_night() -> None:
    tonight = np.array([0.0, 0.002, -0.002, 0.001, -0.3])
    rest = tonight + 0.001 / 3  # their middle is the mean of -0.002, 0 and 0.001
    edge = 2.5 * math.sqrt((rest**2).sum() / 4) / 2
    here = ((rest[:4] ** 2).sum() + edge**2) / 4
    assert float(night_effect(trials(NIGHTS), tonight).within) == pytest.approx(math.sqrt((WITHIN**2 + here) / 2))


def test_the_usual_night_is_the_median_one() -> None:
    halves = np.array([0.001, 0.002, 0.004, 0.008, 0.1])
    nights = NIGHTS[:, None] + halves[:, None] * np.array([-1.0, 0.0, 1.0])
    assert float(night_effect(nights, [0.0]).within) == pytest.approx(WITHIN)
    pairs = NIGHTS[:, None] + halves[:, None] * np.array([-1.0, 1.0])  # variance 2 * half ** 2, one degree of freedom
    assert float(night_effect(pairs, [0.0]).within) == pytest.approx(math.sqrt(2) * D / math.sqrt((1 - 2 / 9) ** 3))
    nights[2, 1:] = math.nan  # of one trial left: says nothing, so the median is between the second and the fourth
    expected = math.sqrt((0.002**2 + 0.008**2) / 2 / CHI2)
    assert float(night_effect(nights, [0.0]).within) == pytest.approx(expected)


def test_one_bad_night_is_drawn_in_before_the_spread_is_taken() -> None:
    nights = np.array([0.0, 0.01, -0.01, 0.02, -0.3])
    level = 0.0  # of 0, 0.01 and -0.01
    rest = np.abs(nights - level)
    robust = 1.4826 * 0.01 * (1 + 1 / 5)
    plain = math.sqrt((rest**2).sum() / 4)
    edge = 2.5 * plain / 2
    assert plain / 2 > robust
    found = night_effect(nights[:, None], [0.0])
    spread = math.sqrt((0.01**2 + 0.01**2 + 0.02**2 + edge**2) / 4)
    assert float(found.between) == pytest.approx(spread)
    many = np.array([*([0.01, -0.01] * 5), 0.07])
    level = 0.01 / 7  # of the middle seven: four at 0.01, three at -0.01
    rest = many - level
    robust, plain = 1.4826 * np.median(np.abs(rest)) * (1 + 1 / 11), math.sqrt((rest**2).sum() / 10)
    assert robust > plain / 2 and 2.5 * robust < rest.max()
    clipped = np.minimum(rest, 2.5 * robust)
    assert float(night_effect(many[:, None], [0.0]).between) == pytest.approx(math.sqrt((clipped**2).sum() / 10))
    assert float(night_effect(-many[:, None], [0.0]).between) == pytest.approx(math.sqrt((clipped**2).sum() / 10))


def test_the_spread_is_as_it_is_where_no_night_is_bad() -> None:
    found = night_effect(NIGHTS[:, None], [0.0, math.nan])
    assert float(found.between) == pytest.approx(SPREAD)
    assert float(found.se) == pytest.approx(SPREAD * math.sqrt(1 + TRIMMED / 5))


def test_nights_that_are_missing_do_not_count() -> None:
    holes = np.concatenate([trials(NIGHTS), np.full((4, 3), math.nan)])
    found, full = night_effect(holes, [0.03]), night_effect(trials(NIGHTS), [0.03])
    for name in ("effect", "se", "df", "between", "within"):
        assert float(getattr(found, name)) == pytest.approx(float(getattr(full, name))), name
    two = night_effect(trials(NIGHTS[:2]), [0.03])
    assert (float(two.df), float(two.effect)) == (1, pytest.approx(0.025))


def test_nothing_is_known_better_than_the_resolution() -> None:
    found = night_effect(np.zeros((4, 3)), [0.03, 0.03])
    assert float(found.between) == RESOLUTION == 5e-4
    assert float(found.se) == RESOLUTION  # RESOLUTION / sqrt(4) from the location, and no less than the resolution
    rough = night_effect(trials(np.zeros(9)), [0.03])
    assert float(rough.se) == pytest.approx(math.sqrt(WITHIN**2 + RESOLUTION**2 * TRIMMED / 9))


def test_the_detectable_effect_by_hand() -> None:
    found = night_effect(trials(NIGHTS), [0.03])
    between = math.sqrt(SPREAD**2 - WITHIN**2 * 0.45)
    t = stats.t(4)
    for repeats, cost in ((1, 1.0), (3, 1.35), (8, 1.19)):
        se = math.hypot(between, WITHIN * math.sqrt(cost / repeats))
        assert float(found.detectable(repeats, alpha=0.01)) == pytest.approx((t.ppf(0.995) + t.ppf(0.95)) * se)
        assert float(found.detectable(repeats, alpha=0.05, power=0.8)) == pytest.approx((t.ppf(0.975) + t.ppf(0.8)) * se)
        assert float(found.detectable(repeats, alpha=0.05, minimum=0.2)) == pytest.approx(0.2 + t.ppf(0.95) * se)


CANARY = np.array([0.02, 0.01, -0.02, 0.01, -0.015])


def plain(values: np.ndarray, tonight: float) -> tuple[float, float]:
    """Effect and standard error of nights of one trial, none of them bad."""
    middle = np.sort(values)[1:-1].mean()
    spread = math.sqrt(((values - middle) ** 2).sum() / (len(values) - 1))
    return tonight - middle, spread * math.sqrt(1 + TRIMMED / len(values))


def slope_of(canary: np.ndarray, cell: np.ndarray) -> float:
    """Ridge regression of deviations from the medians, towards 1, which weighs as much as two nights."""
    x, y = canary - np.median(canary), cell - np.median(cell)
    prior = 2 * (x**2).mean()
    return float((x @ y + prior) / (x @ x + prior))


def with_canary(cell: np.ndarray, tonight: float, canary: np.ndarray, canary_tonight: float) -> NightEffect:
    return night_effect(cell[:, None], [tonight], canary[:, None], [canary_tonight])


def test_a_canary_takes_off_what_the_baseline_says_both_share() -> None:
    slope, level = slope_of(CANARY, NIGHTS), (0.01 + 0.01 - 0.015) / 3
    assert slope == pytest.approx(0.00145 / 0.002275)  # products of deviations and prior, over squares and prior
    found = with_canary(NIGHTS, 0.03, CANARY, 0.02)
    # the canary moved by far less than two standard errors: only what is regressed is taken off
    effect, se = plain(NIGHTS - slope * (CANARY - level), 0.03 - slope * (0.02 - level))
    assert float(found.share) == pytest.approx(slope)
    assert float(found.effect) == pytest.approx(effect)
    assert float(found.se) == pytest.approx(se)
    assert float(found.raw) == pytest.approx(0.03)


def test_a_canary_far_off_takes_all_of_its_change_off_and_its_error_counts() -> None:
    slope, level = slope_of(CANARY, NIGHTS), (0.01 + 0.01 - 0.015) / 3
    moved, error = plain(CANARY, -0.3)
    share = 1 - (2 * error / moved) ** 2
    assert share > slope
    found = with_canary(NIGHTS, -0.25, CANARY, -0.3)
    effect, se = plain(NIGHTS - slope * (CANARY - level), -0.25 - share * (-0.3 - level))
    assert float(found.share) == pytest.approx(share)
    assert float(found.effect) == pytest.approx(effect)
    assert float(found.se) == pytest.approx(math.hypot(se, (share - slope) * error))
    assert float(found.se) > 1.001 * se


def test_a_cell_against_its_canary_shares_nothing_and_one_beyond_it_all() -> None:
    against = with_canary(-3 * CANARY, 0.0, CANARY, 0.0)
    assert (float(against.share), float(against.effect)) == (0, pytest.approx(0.005))
    assert float(against.se) == pytest.approx(plain(-3 * CANARY, 0.0)[1])
    beyond = with_canary(3 * CANARY, 0.0, CANARY, 0.0)
    assert float(beyond.share) == 1


def test_deviations_beyond_three_robust_ones_are_drawn_in_for_the_regression() -> None:
    canary = np.array([0.01, -0.01, 0.005, -0.005, 0.0, 0.008, -0.3])
    cell = np.array([0.004, 0.002, -0.004, -0.002, 0.0, 0.001, -0.2])
    edge_x, edge_y = 3 * 1.4826 * 0.008, 3 * 1.4826 * 0.002
    expected = slope_of(np.clip(canary, -edge_x, edge_x), np.clip(cell, -edge_y, edge_y))
    assert float(with_canary(cell, 0.0, canary, 0.0).share) == pytest.approx(expected)
    assert float(with_canary(NIGHTS, 0.0, np.zeros(5), 0.0).share) == 1, "a canary that never moved leaves the assumption as it is"
    still = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1])  # no robust deviation: three times the resolution
    one = (3 * RESOLUTION) ** 2
    prior = 2 * max(one / 7, RESOLUTION**2)
    assert float(with_canary(np.zeros(7), 0.0, still, 0.0).share) == pytest.approx(prior / (one + prior))


def test_nights_without_a_canary_teach_nothing_of_it_and_are_taken_as_they_are() -> None:
    gaps = np.append(CANARY, math.nan)
    cell = np.append(NIGHTS, 0.005)
    x, y = CANARY - 0.01, NIGHTS - 0.0025  # the cell's median is of all six nights
    prior = 2 * (x @ x) / 5
    slope = (x @ y + prior) / (x @ x + prior)
    level = (0.01 + 0.01 - 0.015) / 3
    found = with_canary(cell, 0.03, gaps, 0.02)
    free = np.append(NIGHTS - slope * (CANARY - level), 0.005)
    effect, se = plain(free, 0.03 - slope * (0.02 - level))
    assert float(found.share) == pytest.approx(slope)
    assert (float(found.effect), float(found.se)) == pytest.approx((effect, se))


def test_a_night_without_a_canary_is_judged_as_if_there_were_none() -> None:
    found = with_canary(NIGHTS, 0.03, CANARY, math.nan)
    assert (float(found.effect), float(found.se)) == pytest.approx(plain(NIGHTS, 0.03))
    assert (float(found.share), float(found.raw)) == (0, pytest.approx(0.03))


def test_a_round_without_a_canary_takes_that_nights() -> None:
    cell = trials(NIGHTS)
    canary = trials(CANARY)
    canary[0] = [0.019, 0.021, math.nan]
    filled = canary.copy()
    filled[0, 2] = 0.02
    found = night_effect(cell, [0.03, 0.031, 0.029], canary, [0.02, 0.02, math.nan])
    same = night_effect(cell, [0.03, 0.031, 0.029], filled, [0.02, 0.02, 0.02])
    for name in ("effect", "se", "share"):
        assert float(getattr(found, name)) == pytest.approx(float(getattr(same, name))), name
    narrow = night_effect(cell, [0.03, 0.031, 0.029], CANARY[:, None], [0.02])
    wide = night_effect(cell, [0.03, 0.031, 0.029], np.repeat(CANARY[:, None], 3, 1), [0.02] * 3)
    assert float(narrow.effect) == pytest.approx(float(wide.effect))
    more = night_effect(cell[:, :2], [0.03, 0.031], np.repeat(CANARY[:, None], 3, 1), [0.02] * 3)
    assert float(more.share) == pytest.approx(float(wide.share))
