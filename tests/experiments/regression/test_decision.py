"""Many cells in one night, looked at again: chances of error, gates, words."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.regression.decision import FASTER, SAME, SLOWER, UNDECIDED, as_estimate, decide, interim_levels, rate_interval, word
from experiments.regression.effect import NightEffect
from experiments.stats.verdict import Verdict


def effects(sizes: list[float], se: float | list[float] = 0.01, df: float = 19) -> NightEffect:
    size = np.array(sizes)
    errors = np.broadcast_to(np.array(se, dtype=float), size.shape)
    same = np.full(size.shape, df)
    return NightEffect(size, errors, same, size, np.zeros(size.shape), errors, errors)


def test_looks_spend_the_whole_alpha_and_nearly_all_of_it_at_the_end() -> None:
    levels = interim_levels([3, 5, 8], 0.01)
    assert sum(levels) == pytest.approx(0.01)
    assert levels == sorted(levels) and levels[0] < 1e-4 and levels[-1] > 0.008
    assert interim_levels([4]) == pytest.approx([0.01])
    for wrong in ([], [3, 3], [5, 3], [0, 2]):
        with pytest.raises(ValueError, match="rising numbers of repeats"):
            interim_levels(wrong)


def test_looking_again_raises_no_more_alarms_than_one_look() -> None:
    random = np.random.default_rng(0)
    trials = random.normal(size=(40_000, 8))
    levels = interim_levels([3, 5, 8], 0.05)
    alarms = np.zeros(len(trials), dtype=bool)
    for look, level in zip((3, 5, 8), levels, strict=True):
        z = trials[:, :look].sum(1) / np.sqrt(look)
        size, se = z * 0.01, np.full(z.shape, 0.01)
        found = NightEffect(size, se, np.full(z.shape, 1e6), size, se, se, se)
        alarms |= found.p_value < level
    assert 0.035 < alarms.mean() < 0.05


def test_the_words() -> None:
    codes, _ = decide(effects([-0.08, 0.08, 0.002, -0.028, np.nan]), 0.03, 0.01)
    assert [word(code) for code in codes] == [Verdict.SLOWER, Verdict.FASTER, Verdict.SAME, Verdict.UNDECIDED, Verdict.UNDECIDED]
    small, _ = decide(effects([-0.02], 0.0005), 0.03, 0.01)
    assert small.tolist() == [SAME]  # clear, but less than what matters
    assert decide(effects([-0.02], 0.0005), 0.01, 0.01)[0].tolist() == [SLOWER]


def test_an_early_look_needs_more() -> None:
    early, late = interim_levels([3, 8], 0.01)
    assert decide(effects([-0.035]), 0.03, early)[0].tolist() == [UNDECIDED]
    assert decide(effects([-0.035]), 0.03, late)[0].tolist() == [SLOWER]
    mixed, _ = decide(effects([-0.035, -0.035]), 0.03, np.array([early, late]))
    assert mixed.tolist() == [UNDECIDED, SLOWER]


def test_the_false_discovery_rate_is_held_over_the_cells_of_each_night() -> None:
    one, q = decide(effects([-0.0335]), 0.03, 0.01)
    many, q_many = decide(effects([-0.0335] + [0.001] * 39), 0.03, 0.01)
    assert (one.tolist(), many.tolist()[0]) == ([SLOWER], UNDECIDED)
    assert q_many[0] == pytest.approx(40 * q[0])
    nights, _ = decide(effects([[-0.06, 0.0], [0.0, 0.06]]), 0.03, 0.01)  # type: ignore[list-item]
    assert nights.tolist() == [[SLOWER, SAME], [SAME, FASTER]]


def test_an_estimate_and_rates_for_people() -> None:
    found = as_estimate(effects([-0.05]), 0, 5)
    assert found.value == pytest.approx(0.9512, abs=1e-4) and found.low < found.value < found.high < 1
    assert rate_interval(0, 0) == (0.0, 1.0)
    low, high = rate_interval(0, 20)
    assert low == 0 and high == pytest.approx(0.1684, abs=1e-4)  # 1 - 0.025 ** (1 / 20)
