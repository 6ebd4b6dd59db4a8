"""Successive elimination: who drops, who leads, at which level."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.stats.interim_looks import RACE_CHANCE
from experiments.stats.race import Standing, bounds, level_of, standing

ALL = np.ones(4, bool)


def noisy(speeds: list[float], rounds: int, sd: float | list[float] = 0.01, seed: int = 1) -> np.ndarray:
    """Logarithms (settings, rounds) of trials that lie `sd` apart."""
    random = np.random.default_rng(seed)
    return np.log(speeds)[:, None] + np.broadcast_to(sd, len(speeds))[:, None] * random.normal(size=(len(speeds), rounds))


def test_levels_of_all_rounds_and_settings_add_up_to_the_chance() -> None:
    assert level_of(2, 1) == pytest.approx(RACE_CHANCE / 2)
    assert level_of(3, 10, 0.06) == pytest.approx(0.06 / 6 / 10)
    assert sum(7 * level_of(rounds, 7) for rounds in range(2, 20_000)) == pytest.approx(RACE_CHANCE, rel=1e-4)


@pytest.mark.parametrize(("rounds", "settings"), [(1, 3), (2, 0)])
def test_a_single_round_has_no_level_and_neither_have_no_settings(rounds: int, settings: int) -> None:
    with pytest.raises(ValueError, match="judged from round 2"):
        level_of(rounds, settings)


def test_what_is_far_behind_drops_and_what_is_near_stays() -> None:
    now = standing(noisy([100, 99.5, 80, 50], 5), ALL)
    assert (now.leader, now.dropped.tolist()) == (0, [False, False, True, True])
    assert now.behind == pytest.approx([0.0, -math.log(0.995), -math.log(0.8), -math.log(0.5)], abs=0.02)
    assert now.low[3] < now.behind[3] < now.high[3] and now.low[2] > 0 > now.low[1]
    assert (now.low[0], now.high[0]) == (0.0, 0.0)


def test_one_round_judges_no_one() -> None:
    now = standing(noisy([100, 50, 50, 50], 1), ALL)
    assert now.leader == -1 and not now.dropped.any() and np.isnan(now.behind).all()
    assert not now.within(ALL, 10.0), "nothing is level before anything is known"


def test_what_a_round_does_to_all_cancels() -> None:
    values = noisy([100, 97, 94, 80], 4)
    shift = np.array([0.0, -0.3, 0.2, -0.5])
    one, other = standing(values, ALL), standing(values + shift, ALL)
    assert other.behind == pytest.approx(one.behind) and other.low == pytest.approx(one.low, rel=1e-6)


def test_those_out_of_the_race_tell_of_spreads_alone() -> None:
    values = noisy([100, 99, 98, 200], 4)
    racing = np.array([True, True, True, False])
    now = standing(values, racing)
    assert now.leader == 0 and not now.dropped[3] and np.isnan(now.behind[3])


def test_only_those_able_lead_and_drop_others() -> None:
    values = noisy([100, 70, 99, 60], 5)
    now = standing(values, ALL, able=np.array([False, True, False, False]))
    assert now.leader == 1
    assert now.dropped.tolist() == [False, False, False, True], "the faster ones may turn out to keep the limit, or not"
    assert now.behind[0] == pytest.approx(math.log(0.7), abs=0.02)
    assert standing(values, ALL, able=np.zeros(4, bool)).leader == -1


def test_two_settings_are_compared_in_pairs() -> None:
    """Rounds far apart, the pairs of each round close: the paired t test on two pairs has one degree of freedom."""
    values = np.log([[100.0, 50.0, 25.0], [90.0, 45.2, 22.4]])
    both = np.ones(2, bool)
    now = standing(values, both)
    pairs = values[0] - values[1]
    assert (now.leader, now.behind[1]) == (0, pytest.approx(pairs.mean()))
    assert now.dropped[1], "three pairs 10 % apart, half a percent from each other"


def test_a_lost_trial_leaves_the_others() -> None:
    values = noisy([100, 99, 80, 50], 4)
    values[2, 1] = values[1, 2] = np.nan
    now = standing(values, ALL)
    assert now.leader == 0 and now.dropped.tolist() == [False, False, True, True]
    values[3, 1:] = np.nan
    alone = standing(values, ALL)
    assert not alone.dropped[3] and alone.high[3] == math.inf, "with one value it is not judged"


def test_the_best_stays_though_it_is_far_noisier() -> None:
    """By one pooled spread it would be surely behind: its own trials lie further apart than the others' spread lets expect."""
    values = noisy([100.0] + [99.0] * 29, 2, [0.0] + [0.01] * 29)
    values[0] += (-0.02, -0.22)
    pooled = 0.01
    mean_behind = values[1:].mean(axis=1).max() - values[0].mean()
    assert mean_behind > 6 * pooled * math.sqrt(2 / 2)
    assert not standing(values, np.ones(30, bool)).dropped[0]


def test_values_without_any_spread() -> None:
    now = standing(np.array([[2.0, 2.0], [1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]), ALL)
    assert now.dropped.tolist() == [False, True, False, True]
    assert now.within(ALL & ~now.dropped, 0.02)


@pytest.mark.parametrize(("margin", "level"), [(0.2, True), (0.001, False)])
def test_the_leader_is_level_with_all_that_are_left(margin: float, level: bool) -> None:
    now = standing(noisy([100, 99.9, 99.8, 99.9], 8), ALL)
    assert now.within(ALL, margin) is level


def test_the_leader_is_as_good_as_the_best_below_the_margin_itself() -> None:
    now = Standing(0, np.zeros(2), np.array([0.0, -0.015]), np.array([0.0, 0.02]), np.zeros(2, bool))
    assert [now.within(np.ones(2, bool), margin) for margin in (0.01, 0.015, 0.0151)] == [False, False, True]


def test_a_setting_is_held_against_the_next_best_where_the_best_is_noisy() -> None:
    values = [
        [1.0, 0.9782, 1.0049, 1.0328, 0.9898],
        [0.9996, 0.999, 0.9991, 0.9994, 0.9993],
        [0.97, 0.9701, 0.9696, 0.9697, 0.9701],
        [0.9989, 0.9983, 0.9989, 0.9995, 0.9996],
    ]
    now = standing(values, ALL)
    assert now.leader == 0 and now.dropped.tolist() == [False, False, True, False]
    assert now.low[2] < 0 < now.high[2], "the best alone could not tell"


def test_a_noisy_setting_keeps_its_own_variance() -> None:
    """With that of the quiet ones mixed in, the second setting, 1.2 % behind, would drop."""
    values = [
        [1.0001, 0.9999, 1.0003, 1.0001],
        [0.9831, 0.9915, 0.9876, 0.9893],
        [0.9996, 0.9994, 0.9997, 1.0],
        [0.9988, 0.9999, 0.9994, 0.9996],
        [0.9997, 0.9998, 1.0002, 1.0005],
        [0.9999, 1.0007, 0.9997, 1.0002],
        [1.0005, 1.0, 0.9996, 0.9995],
        [0.9998, 1.0001, 0.9995, 0.9999],
    ]
    now = standing(values, np.ones(8, bool))
    assert now.leader == 5 and not now.dropped.any() and now.low[1] < 0


def test_one_round_in_common_compares_no_one() -> None:
    nan = math.nan
    now = standing([[1, 1.001, nan, nan], [nan, 0.5, 0.501, 0.5005], [0.999, 1, 1.001, 1]], np.ones(3, bool))
    assert now.leader == 0 and (now.low[1], now.high[1]) == (-math.inf, math.inf)
    assert math.isfinite(now.low[2]), "with two it is judged"


@pytest.mark.parametrize(("values", "racing"), [(np.zeros(3), np.ones(3, bool)), (np.zeros((3, 2)), np.ones(2, bool))])
def test_other_shapes_are_refused(values: np.ndarray, racing: np.ndarray) -> None:
    with pytest.raises(ValueError, match="a race needs values"):
        standing(values, racing)


def test_bounds_hold_the_mean_and_are_none_for_a_single_value() -> None:
    values = noisy([100, 50, 20, 10], 3)
    values[3, 1:] = np.nan
    low, high = bounds(values, 4)
    assert (low[:3] < values[:3].mean(axis=1)).all() and (high[:3] > values[:3].mean(axis=1)).all()
    assert (low[3], high[3]) == (-math.inf, math.inf)
    assert (high[0] - low[0]) < 0.4
    wider_low, _ = bounds(values, 4, chance=0.001)
    assert (wider_low[:3] < low[:3]).all()


def test_bounds_of_values_that_agree_exactly_are_the_value() -> None:
    low, high = bounds(np.full((2, 2), 7.0), 2)
    assert low == pytest.approx([7.0, 7.0]) and high == pytest.approx([7.0, 7.0])
    for rounds, value in ((3, math.log(6)), (7, math.log(5)), (3, 0.1)):  # sums of these, by their number, are not these
        low, high = bounds(np.full((2, rounds), value), 2)
        assert {*low, *high} == {value}


def test_equal_settings_are_seldom_dropped() -> None:
    """Of 30 races of eight equal settings over four rounds, each setting may be the best: fewer than 5 % of races drop the first."""
    dropped = 0
    for seed in range(30):
        values, racing = noisy([100.0] * 8, 4, 0.02, seed=seed), np.ones(8, bool)
        for rounds in range(2, 5):
            racing &= ~standing(values[:, :rounds], racing).dropped
        dropped += not racing[0]
    assert dropped <= 1


@pytest.mark.parametrize(("place", "drops"), [(0, True), (2, True), (3, False)])
def test_a_setting_is_held_against_the_three_best_means_alone(place: int, drops: bool) -> None:
    """The settings ahead vary by 20 % from trial to trial but one, which would drop the sixth."""
    means = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.55, *[0.0] * 8])
    noise = np.random.default_rng(3).normal(size=(14, 6))
    sd = np.where((np.arange(14) < 5) & (np.arange(14) != place), 0.2, 0.0005)
    values = means[:, None] + sd[:, None] * (noise - noise.mean(axis=1, keepdims=True))
    now = standing(values, np.ones(14, bool))
    assert now.leader == 0 and now.dropped[5] == drops
