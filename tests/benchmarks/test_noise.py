"""The noises of simulated nights are what their lines say."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.noise import FAMILIES, JUDGED, PLANNED, RECORDING, TRIALS, Nights, disturbed, spells, together

RUNS, CELLS, NIGHTS = 60, 12, 40


def draw(name: str) -> Nights:
    return FAMILIES[name](np.random.default_rng(1), RUNS, CELLS, NIGHTS)


@pytest.mark.parametrize("name", FAMILIES)
def test_each_has_its_shapes_and_no_change_of_code(name: str) -> None:
    nights = draw(name)
    assert nights.cells.shape == (RUNS, CELLS, NIGHTS, TRIALS) and nights.canary.shape == (RUNS, NIGHTS, TRIALS)
    assert nights.pairs.shape == (RUNS, CELLS, JUDGED, PLANNED, 2)
    difference = nights.pairs[..., 1] - nights.pairs[..., 0]
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(difference.size)
    assert nights.counted.shape == (CELLS,) and nights.counted.any()
    again = draw(name)
    assert np.array_equal(nights.cells, again.cells, equal_nan=True) and np.array_equal(nights.pairs, again.pairs)


def test_pairs_are_measured_in_turns() -> None:
    nights = together(
        np.zeros((1, NIGHTS)), np.zeros((1, 1, NIGHTS)), lambda shape: np.broadcast_to(np.arange(float(shape[-1])), shape).copy()
    )
    assert nights.pairs[0, 0, 0, :4].tolist() == [[0, 1], [3, 2], [4, 5], [7, 6]]


def change(values: np.ndarray) -> np.ndarray:
    """Judged nights less those before, over nights and trials."""
    return np.asarray(values[..., -JUDGED:, :].mean((-2, -1)) - values[..., :-JUDGED, :].mean((-2, -1)))


def test_another_node_hits_cells_by_half_all_and_one_and_a_half_of_what_it_does_to_the_canary() -> None:
    nights = draw("node swap")
    side = np.sign(change(nights.canary))
    assert 0.3 < (side > 0).mean() < 0.7 and np.abs(change(nights.canary)).mean() == pytest.approx(0.04, abs=0.002)
    cells = -(side[:, None] * change(nights.cells)).ravel()
    assert {size: round(float(np.mean(np.abs(cells - size) < 0.0099)), 1) for size in (-0.02, -0.04, -0.06)} == {
        -0.02: 0.3,
        -0.04: 0.3,
        -0.06: 0.3,
    }


@pytest.mark.parametrize(("name", "factor"), [("variance × 3", 3.0), ("spread × 3", 9.0)])
def test_trials_of_the_judged_nights_and_their_pairs_vary_more(name: str, factor: float) -> None:
    nights = draw(name)
    before, tonight = nights.cells[:, :, :-JUDGED].var(-1, ddof=1).mean(), nights.cells[:, :, -JUDGED:].var(-1, ddof=1).mean()
    assert (before, tonight) == (pytest.approx(1e-4, rel=0.05), pytest.approx(factor * 1e-4, rel=0.05))
    assert nights.pairs.var(axis=(-2, -1), ddof=1).mean() == pytest.approx(factor * 1e-4, rel=0.05)


def test_throttling_takes_a_quarter_of_the_time_in_spells_of_six() -> None:
    state = spells(np.random.default_rng(2), (400, 500), 1 / 18, 1 / 6)
    begun = (np.diff(state, axis=-1) == 1).sum()
    assert state.mean() == pytest.approx(0.25, abs=0.01) and state.sum() / begun == pytest.approx(6, rel=0.05)
    rounds = draw("throttling").cells.mean(1)  # what all cells share
    assert np.ptp(rounds, axis=-1).max() > 0.035


def test_a_hit_is_one_cells_alone_and_only_that_counts() -> None:
    nights = draw("hit on one cell")
    assert nights.counted.tolist() == [True] + [False] * (CELLS - 1)
    assert change(nights.cells)[:, 0].mean() == pytest.approx(-0.05, abs=0.002) and abs(change(nights.cells)[:, 1:].mean()) < 0.002
    assert abs(change(nights.canary).mean()) < 0.002


def test_correlated_cells_move_together_and_without_the_canary() -> None:
    nights = draw("correlated cells")
    one, two, canary = (values.mean(-1).ravel() for values in (nights.cells[:, 0], nights.cells[:, 1], nights.canary))
    assert np.corrcoef(one, two)[0, 1] > 0.75 and abs(np.corrcoef(one, canary)[0, 1]) < 0.3


def test_a_season_comes_back_after_forty_nights() -> None:
    nights = FAMILIES["seasonal"](np.random.default_rng(1), RUNS, 1, 81).canary.mean(-1)
    assert np.abs(nights[:, 0] - nights[:, 40]).mean() < 0.008 and np.ptp(nights, axis=-1).mean() == pytest.approx(0.065, abs=0.008)


def test_missing_nights_are_a_quarter_of_the_past_and_none_that_is_judged() -> None:
    nights = draw("missing nights")
    gone = np.isnan(nights.canary).all(-1)
    assert gone[:, :-JUDGED].mean() == pytest.approx(0.25, abs=0.02) and not gone[:, -JUDGED:].any()
    there = ~np.isnan(nights.canary[..., 0])
    assert np.isnan(nights.cells.transpose(0, 2, 1, 3)[there]).mean() == pytest.approx(0.1, abs=0.01)


def test_recorded_nights_are_drawn_whole() -> None:
    assert RECORDING.is_file()
    nights = draw("recorded")
    assert np.isfinite(nights.cells).all() and np.isfinite(nights.canary).all() and np.isfinite(nights.pairs).all()


@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_other_work_disturbs_a_told_share_of_all_trials_in_spells_and_makes_them_slower(rate: float) -> None:
    calm = draw("quiet")
    beside = disturbed(calm, np.random.default_rng(5), rate)
    masks = beside.disturbed
    assert masks is not None
    for before, after, mask in ((calm.cells, beside.cells, masks.cells), (calm.canary, beside.canary, masks.canary)):
        slower = before - after
        assert mask.mean() == pytest.approx(rate, abs=0.03) and (slower[~mask] == 0).all()
        assert slower[mask].min() > 0 and slower[mask].mean() == pytest.approx(0.08, rel=0.1)
    assert masks.pairs.mean(axis=(0, 1, 2, 3)) == pytest.approx([rate, rate], abs=0.03), "neither commit more often"
    first, second = masks.pairs[..., ::2, 0], masks.pairs[..., ::2, 1]
    assert (first & second).mean() > 2 * rate**2, "neighbours in time are disturbed together"
    turn = masks.pairs[..., :-1:2, 1] & masks.pairs[..., 1::2, 1]
    assert turn.mean() > (masks.pairs[..., :-1:2, 0] & masks.pairs[..., 1::2, 0]).mean(), "A B B A: the two in the middle are neighbours"
