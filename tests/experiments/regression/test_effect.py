"""Tonight against a baseline: what moves it, what does not, and that its errors are those it says. Seeded."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.regression.effect import canary_deviation, night_effect, night_error, night_value

RUNS = 3000


def nights(random: np.random.Generator, n: int, k: int, *, node: float = 0.0, own: float = 0.004, trial: float = 0.01):  # type: ignore[no-untyped-def]
    """Cells (runs, n + 1, k) and their canary; the last night is tonight."""
    shared = node * random.normal(size=(RUNS, n + 1, 1))
    cells = shared + own * random.normal(size=(RUNS, n + 1, 1)) + trial * random.normal(size=(RUNS, n + 1, k))
    return cells, shared + trial * random.normal(size=(RUNS, n + 1, k))


def test_a_night_is_the_middle_of_its_trials() -> None:
    assert night_value([1.0, 5.0, 2.0]) == 2.0
    assert night_value([0.0, 1.0, 2.0, 100.0]) == 1.5
    assert night_value([3.0, np.nan, 1.0]) == 2.0
    assert np.isnan(night_value([np.nan, np.nan]))
    assert night_value([[1.0, 2.0, 9.0], [4.0, np.nan, np.nan]]).tolist() == [2.0, 4.0]


@pytest.mark.parametrize("n", [6, 20])
@pytest.mark.parametrize("node", [0.0, 0.02])
def test_false_alarms_are_as_rare_as_the_p_value_says(n: int, node: float) -> None:
    cells, canary = nights(np.random.default_rng(n), n, 3, node=node)
    found = night_effect(cells[:, :-1], cells[:, -1], canary[:, :-1], canary[:, -1])
    for alpha in (0.05, 0.01):
        assert (found.p_value < alpha).mean() < 1.3 * alpha + 0.003
    if n == 20:
        assert (found.p_value < 0.05).mean() > 0.02  # and it is not afraid of its shadow either


def test_a_slow_node_is_not_a_slow_cell() -> None:
    cells, canary = nights(np.random.default_rng(1), 15, 3)
    cells[:, -1] -= 0.08
    canary[:, -1] -= 0.08
    both = night_effect(cells[:, :-1], cells[:, -1], canary[:, :-1], canary[:, -1])
    assert abs(np.median(both.raw) + 0.08) < 0.002
    assert abs(np.median(both.effect)) < 0.012  # though the node never moved before, and so taught nothing
    assert np.median(both.share) > 0.8
    alone, canary = nights(np.random.default_rng(1), 15, 3)
    alone[:, -1] -= 0.08
    own = night_effect(alone[:, :-1], alone[:, -1], canary[:, :-1], canary[:, -1])
    assert abs(np.median(own.effect) + 0.08) < 0.003


def test_a_canary_helps_where_the_node_wanders_and_costs_little_where_it_does_not() -> None:
    for node, helps in ((0.02, True), (0.0, False)):
        cells, canary = nights(np.random.default_rng(2), 20, 3, node=node)
        with_it = night_effect(cells[:, :-1], cells[:, -1], canary[:, :-1], canary[:, -1]).effect.std()
        without = night_effect(cells[:, :-1], cells[:, -1]).effect.std()
        assert with_it < 0.65 * without if helps else with_it < 1.08 * without


def test_one_slow_trial_and_one_bad_night_move_nothing() -> None:
    quiet = np.full((10, 3), 4.0) + 0.001 * np.random.default_rng(3).normal(size=(10, 3))
    tonight = np.array([4.0, 4.0, 3.5])
    assert abs(float(night_effect(quiet, tonight).effect)) < 0.002
    bad = quiet.copy()
    bad[4] -= 0.3
    assert abs(float(night_effect(bad, quiet[0]).effect)) < 0.002
    # a night 30 % off is one bad night, not a spread of 30 %: it counts as 2.5 times half the plain standard deviation of 0.1
    assert float(night_effect(bad, quiet[0]).se) == pytest.approx(0.125 / 3 * np.sqrt(1 + 1.19 / 10), abs=2e-4)


@pytest.mark.parametrize(("n", "cost"), [(2, 1.0), (3, 1.35), (4, 1.19), (20, 1.19)])
def test_the_error_of_a_baselines_level_has_what_leaving_nights_out_costs(n: int, cost: float) -> None:
    """Nights alternate around their middle, one trial each: their spread is all that there is."""
    values = np.where(np.arange(n) % 2, 0.01, -0.01) if n != 3 else np.array([-0.01, 0.0, 0.01])
    spread = np.sqrt((values**2).sum() / (n - 1))
    found = night_effect(values[:, None], np.zeros(1))
    assert float(found.se) == pytest.approx(spread * np.sqrt(1 + cost / n), rel=1e-9)


def test_the_detectable_effect_is_found_as_often_as_it_says() -> None:
    cells, _ = nights(np.random.default_rng(4), 20, 3)
    size = float(np.median(night_effect(cells[:, :-1], cells[:, -1]).detectable(3, alpha=0.01)))
    cells[:, -1] -= size
    assert (night_effect(cells[:, :-1], cells[:, -1]).p_value < 0.01).mean() == pytest.approx(0.95, abs=0.04)


def test_a_metric_that_never_varies_is_known_to_its_resolution_only() -> None:
    found = night_effect(np.zeros((8, 3)), np.full(3, 1e-4))
    assert float(found.p_value) > 0.5
    assert float(night_effect(np.zeros((8, 3)), np.full(3, 0.05)).p_value) < 1e-6


def test_what_is_missing_stays_unknown() -> None:
    assert np.isnan(night_effect(np.zeros((1, 3)), np.zeros(3)).effect)  # one night is no baseline
    assert np.isnan(night_effect(np.zeros((5, 3)), np.full(3, np.nan)).effect)
    holes = np.zeros((5, 3))
    holes[1:3] = np.nan
    gone = np.full((5, 3), np.nan)
    found = night_effect(holes, np.zeros(3), gone, np.full(3, np.nan))
    assert (float(found.effect), float(found.share)) == (0.0, 0.0)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a baseline of shape \(4, 5, 3\) does not fit a night of shape \(5, 3\)"):
        night_effect(np.zeros((4, 5, 3)), np.zeros((5, 3)))
    with pytest.raises(ValueError, match="a canary of shape"):
        night_effect(np.zeros((5, 3)), np.zeros(3), np.zeros((4, 3)), np.zeros(3))


def test_a_canary_deviates_from_the_level_of_its_nights_and_not_where_it_is_missing() -> None:
    """The level leaves out the lowest and the highest quarter: one bad night does not move it."""
    assert canary_deviation([0.0, 0.0, 0.0, -1.0, np.nan]).tolist() == [0.0, 0.0, 0.0, -1.0, 0.0]
    assert canary_deviation([[1.0, 3.0], [np.nan, np.nan]]).tolist() == [[-1.0, 1.0], [0.0, 0.0]]


def test_a_nights_own_error_is_of_what_its_repeats_usually_vary_by() -> None:
    """Medians of chi-square with 1 and 2 degrees of freedom, over these, are 0.4705 and 0.7023 by Wilson & Hilferty."""
    repeats = np.array([[0.0, 0.02, np.nan], [0.0, 0.02, 0.04], [0.0, 0.0, 9.0], [np.nan] * 3])
    error, df = night_error(repeats)
    usual = np.sqrt(0.0004 / (1 - 2 / 18) ** 3)  # the middle one of 0.0002 / 0.4705, 0.0004 / 0.7023 and a rough night's
    assert error[:3] == pytest.approx(usual * np.sqrt([1 / 2, 1.35 / 3, 1.35 / 3]))
    assert np.isnan(error[3]) and df == (1 + 2 + 2) / 2
    alone, one = night_error(np.array([[0.0], [0.1]]))
    assert np.isnan(alone).all() and one == 1.0
