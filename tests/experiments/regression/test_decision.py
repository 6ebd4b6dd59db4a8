"""Many cells in one night, with interim analyses: chances of error, gates, words."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from experiments.regression.decision import FASTER, SAME, SLOWER, UNDECIDED, as_estimate, decide, word
from experiments.regression.effect import NightEffect
from experiments.stats.interim_levels import interim_levels
from experiments.stats.verdict import Verdict


def effects(sizes: list[float], se: float | list[float] = 0.01, df: float = 19) -> NightEffect:
    size = np.array(sizes)
    errors = np.broadcast_to(np.array(se, dtype=float), size.shape)
    same = np.full(size.shape, df)
    return NightEffect(size, errors, same, size, np.zeros(size.shape), errors, errors)


def test_interim_analyses_raise_no_more_alarms_than_one_analysis() -> None:
    random = np.random.default_rng(0)
    trials = random.normal(size=(40_000, 8))
    levels = interim_levels([3, 5, 8], 0.05)
    alarms = np.zeros(len(trials), dtype=bool)
    for count, level in zip((3, 5, 8), levels, strict=True):
        z = trials[:, :count].sum(1) / np.sqrt(count)
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


def test_an_early_analysis_needs_more() -> None:
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


def test_an_estimate_for_people() -> None:
    found = as_estimate(effects([-0.05]), 0, 5)
    assert found.value == pytest.approx(0.9512, abs=1e-4) and found.low < found.value < found.high < 1


def chance_of(p: float, df: float = 19, se: float = 0.03) -> float:
    """A slow-down with this two-sided p."""
    return float(-stats.t.isf(p / 2, df)) * se


@pytest.mark.parametrize(("p", "expected"), [(0.0099, SLOWER), (0.0101, UNDECIDED), (0.04, UNDECIDED)])
def test_one_cell_alone_is_held_to_its_own_chance_of_a_false_alarm(p: float, expected: int) -> None:
    codes, q = decide(effects([chance_of(p)], 0.03), 0.03, 0.01)
    assert codes.tolist() == [expected], "the false discovery rate alone would let 5 % through"
    assert q.tolist() == pytest.approx([p])


def test_an_early_analysis_has_its_own_level() -> None:
    for p, expected in ((0.0019, SLOWER), (0.0021, UNDECIDED)):
        codes, q = decide(effects([chance_of(p)], 0.03), 0.03, 0.002)
        assert codes.tolist() == [expected]
        assert q.tolist() == pytest.approx([5 * p])  # p * 0.01 / 0.002
    for p, expected in ((0.049, SLOWER), (0.051, UNDECIDED)):
        assert decide(effects([chance_of(p)], 0.03), 0.03, 0.05, alpha=0.05, fdr=0.2)[0].tolist() == [expected]
    _, q = decide(effects([-0.01], 0.03), 0.03, 1e-6)
    assert q.tolist() == [1.0]


@pytest.mark.parametrize(("p", "expected"), [(0.0049, SLOWER), (0.0051, UNDECIDED)])
def test_one_of_ten_cells_is_held_to_the_false_discovery_rate(p: float, expected: int) -> None:
    calm = effects([chance_of(p)] + [0.0] * 9, 0.03)
    codes, q = decide(calm, 0.03, 0.01)
    assert (codes[0], q[0]) == (expected, pytest.approx(10 * p))
    assert decide(calm, 0.03, 0.01, fdr=0.04)[0][0] == UNDECIDED


def test_q_values_of_a_night_are_benjamini_and_hochbergs() -> None:
    p = np.array([0.001, 0.004, 0.003, 0.5])
    _, q = decide(effects([chance_of(value) for value in p], 0.03), 0.03, [0.01, 0.01, 0.005, 0.01])
    assert q.tolist() == pytest.approx(stats.false_discovery_control(p * [1, 1, 2, 1]))
    _, unknown = decide(effects([chance_of(0.001), np.nan], 0.03), 0.03, 0.01)
    assert unknown.tolist() == pytest.approx([0.002, 1.0]), "a cell that is not known counts as one of the night's"
    codes, none = decide(effects([]), 0.03, 0.01)
    assert (codes.tolist(), none.tolist()) == ([], [])


def test_a_change_of_exactly_what_matters_counts() -> None:
    edge = float(np.log1p(0.03))
    sizes = [-edge, edge, -0.9999 * edge, 0.9999 * edge]
    codes, _ = decide(effects(sizes, 1e-3), 0.03, 0.01)
    assert codes.tolist() == [SLOWER, FASTER, UNDECIDED, UNDECIDED]
    each, _ = decide(effects([-0.05, -0.05], 1e-3), [0.03, 0.06], 0.01)
    assert each.tolist() == [SLOWER, SAME]


def test_same_takes_the_95_percent_interval_within_what_matters() -> None:
    edge, t = float(np.log1p(0.03)), 2.093024054  # 97.5 % of Student's t with 19 degrees of freedom
    for size in (-0.01, 0.01):
        inside, outside = ((edge - 0.01) / (t + more) for more in (0.001, -0.001))
        assert decide(effects([size, size], [inside, outside]), 0.03, 0.01)[0].tolist() == [SAME, UNDECIDED]


def test_codes_are_those_that_ledgers_hold_and_an_unknown_error_is_undecided() -> None:
    assert (SLOWER, SAME, FASTER, UNDECIDED) == (-1, 0, 1, 2)
    assert [word(code) for code in (-1, 0, 1, 2)] == [Verdict.SLOWER, Verdict.SAME, Verdict.FASTER, Verdict.UNDECIDED]
    codes, q = decide(effects([-0.1, 0.0], [np.nan, np.inf]), 0.03, 0.01)
    assert (codes.tolist(), q.tolist()) == ([UNDECIDED, UNDECIDED], [1.0, 1.0])


def test_an_estimate_has_students_interval() -> None:
    found = as_estimate(effects([0.2, -0.05], df=4), 1, 5)
    half = 2.776445105 * 0.01
    assert (found.value, found.low, found.high) == pytest.approx((np.exp(-0.05), np.exp(-0.05 - half), np.exp(-0.05 + half)))
    assert (found.se, found.df, found.n) == (0.01, 4, 5)
