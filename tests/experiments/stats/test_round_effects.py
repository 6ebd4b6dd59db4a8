"""Rounds that act on some cells alone: found, and then each pair of cells is compared by its own rounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.stats.layout import Layout
from experiments.stats.round_effects import _together, differ_by_cell


def layout(values: np.ndarray, *, less: frozenset[tuple[int, int]] = frozenset()) -> Layout:
    """`values` (cells, rounds), rounds forward and backward; trials `less` are missing."""
    count = len(values)
    trials = [
        (values[cell, number], cell, number, number * count + (count - 1 - cell if number % 2 else cell))
        for cell in range(count)
        for number in range(values.shape[1])
        if (cell, number) not in less
    ]
    logs, cells, rounds, places = zip(*trials, strict=True)
    return Layout(logs, cells, rounds, places)


def sweep(seed: int, cells: int, rounds: int, *, hit: int = 0, between: float = 0.02, own: float = 0.002) -> np.ndarray:
    """Equal cells, the last `hit` of which have a round's effect; the others have none."""
    random = np.random.default_rng([seed, cells, rounds])
    values = own * random.normal(size=(cells, rounds))
    values[cells - hit :] += between * random.normal(size=rounds)
    return np.asarray(values)


def test_the_statistic_is_one_where_all_go_together_and_the_least_there_is_where_none_do() -> None:
    cell, rounds = np.repeat([0, 1, 2], 3), np.tile([0, 1, 2], 3)
    along = np.array([1.0, 0.0, -1.0])
    together = np.concatenate([along, -5 * along, 0.1 * along])
    apart = np.concatenate(
        [np.array([np.cos(angle + turn) for turn in 2 * np.pi * np.arange(3) / 3]) for angle in np.pi * np.arange(3) / 3]
    )
    assert _together(np.column_stack([together, apart]), cell, rounds) == pytest.approx([1.0, 0.5])


def spread_by(turn: float) -> np.ndarray:
    """(9,): residuals of three cells in three rounds, whose directions lie `turn` apart: the statistic is (1 + 2 cos(turn)^2) / 3."""
    plane = np.array([[1.0, -1, 0], [1, 1, -2]]) / np.sqrt([[2.0], [6]])
    return np.concatenate([np.array([np.cos(angle), np.sin(angle)]) @ plane for angle in (-turn, 0, turn)])


@pytest.mark.parametrize(("further", "expected"), [(0, True), (9, True), (10, False), (199, False)])
def test_one_in_twenty_of_the_drawn_may_go_together_as_far(further: int, expected: bool) -> None:
    """199 are drawn, and what was measured counts as one of 200: 9 as far are 10 of 200."""
    cell, rounds = np.repeat([0, 1, 2], 3), np.tile([0, 1, 2], 3)
    drawn = np.column_stack([spread_by(0.1 if place < further else 1.0) for place in range(199)])
    assert differ_by_cell(spread_by(0.5), np.ones(9), cell, rounds, lambda _: drawn) is expected


def test_a_cell_of_two_trials_says_nothing() -> None:
    """Three cells lie apart as drawn ones do, or less; with the fourth, of two trials, they would go together further."""
    cell, rounds = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3]), np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1])
    residuals = np.concatenate([spread_by(np.pi / 3), [1.0, -1.0]])
    drawn = np.tile(np.concatenate([spread_by(np.arccos(np.sqrt(0.4))), [0.0, 0.0]])[:, None], 199)
    assert _together(np.column_stack([residuals, drawn[:, 0]]), cell, rounds) == pytest.approx([0.625, 0.6])
    assert not differ_by_cell(residuals, np.ones(11), cell, rounds, lambda _: drawn)


@pytest.mark.parametrize(("hit", "expected"), [(0, False), (4, True), (8, False)])
def test_rounds_that_half_of_the_cells_feel_are_found_and_those_that_all_do_are_not(hit: int, expected: bool) -> None:
    found = [layout(sweep(seed, 8, 5, hit=hit)).rounds_differ for seed in range(60)]
    assert sum(found) == 60 if expected else sum(found) <= 8  # 3 expected, 8 or fewer with 99 %


def test_a_noisy_cell_is_no_effect_of_rounds() -> None:
    found = []
    for seed in range(60):
        values = sweep(seed, 8, 5)
        values[0] *= 20
        found.append(layout(values).rounds_differ)
    assert sum(found) <= 8


def test_then_cells_are_compared_in_pairs() -> None:
    values = sweep(1, 8, 4, hit=4)
    found, paired = layout(values).difference(7, 0), stats.ttest_rel(values[7], values[0])
    assert (found.value, found.p_value, found.df) == (
        pytest.approx(values[7].mean() - values[0].mean()),
        pytest.approx(paired.pvalue),
        pytest.approx(3),
    )
    without = sweep(1, 8, 4)
    assert layout(without).difference(7, 0).df > 3.5, "all cells tell how far trials lie apart"


@pytest.mark.parametrize(
    ("shape", "less"),
    [
        ((2, 5), frozenset()),  # cells: they are compared in pairs anyway
        ((6, 2), frozenset()),  # rounds: residuals of two are alike but for their sign
        ((6, 3), frozenset((cell, 2) for cell in range(4))),  # cells with three trials
    ],
)
def test_too_few_trials_show_nothing(shape: tuple[int, int], less: frozenset[tuple[int, int]]) -> None:
    values = sweep(2, *shape, hit=shape[0] // 2)
    assert not layout(values, less=less).rounds_differ


def test_one_missing_trial_does_not_hide_it() -> None:
    assert layout(sweep(3, 8, 4, hit=4), less=frozenset({(1, 2), (6, 0)})).rounds_differ


def test_the_same_trials_always_give_the_same_answer() -> None:
    values = sweep(4, 6, 3, hit=1, between=0.004)
    assert len({layout(values).rounds_differ for _ in range(5)}) == 1


def test_two_cells_with_one_round_in_common_are_not_compared_by_what_was_found_wrong() -> None:
    """Cell 0 ran in rounds 0 to 3, cell 7 in rounds 3 to 6, the others in all."""
    values = sweep(5, 8, 7, hit=4)
    found = layout(values, less=frozenset({*((0, number) for number in (4, 5, 6)), *((7, number) for number in (0, 1, 2))}))
    assert found.rounds_differ and found.difference(7, 0).half_width == math.inf
    assert math.isfinite(found.difference(6, 0).half_width)


def test_residuals_of_zero_say_nothing() -> None:
    cell, rounds = np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)
    assert not differ_by_cell(np.zeros(9), np.zeros(9), cell, rounds, lambda noise: noise)


def test_intervals_hold_equal_cells_though_rounds_hit_half_of_them() -> None:
    """Of these sweeps 79 % where cells are not compared in pairs."""
    held = []
    for seed in range(120):
        found = layout(sweep(seed, 8, 5, hit=4))
        held += [(one := found.difference(cell, 0)).low <= 0 <= one.high for cell in (4, 5, 6, 7)]
    assert sum(held) / len(held) > 0.92
