"""How many more rounds would decide a comparison, by its effect and its standard error as they are now."""

from __future__ import annotations

import math

import pytest

from experiments.metrics import metric_of
from experiments.stats.estimate import Estimate
from experiments.stats.interim_looks import Look
from tasks.analysis import rounds_left as module
from tasks.analysis.rounds_left import rounds_left

EDGE = math.log(1.02)  # of the smallest effect
AFTER_FIVE = [Look(round=3, spent=0.2), Look(round=5, spent=0.75)]


def left(monkeypatch: pytest.MonkeyPatch, effect: float, se: float, df: float) -> int | None:
    """After five rounds; both in units of EDGE. Levels are those of one test: 0.5 % of faster and slower, 5 % of the interval."""
    monkeypatch.setattr(module, "look_levels", lambda looks, chance: [chance])
    ratio = Estimate(math.exp(effect * EDGE), 0.0, math.inf, se * EDGE, df)
    return rounds_left(ratio, metric_of("throughput"), AFTER_FIVE)


@pytest.mark.parametrize(
    ("effect", "se", "more"),
    [
        (0.0, 0.8, 8),  # 1.96 * 0.8 * sqrt(5 / 13) = 0.97, and 1.01 after 12 rounds
        (0.5, 0.4, 8),  # half of the way, at half the error
        (0.0, 1.6, 45),  # after 50 rounds: 49.2 would do
        (0.0, 1.7, None),  # 55.5, and 55 are the most
    ],
)
def test_same_takes_as_many_rounds_as_bring_the_interval_within_the_smallest_effect(
    monkeypatch: pytest.MonkeyPatch, effect: float, se: float, more: int | None
) -> None:
    assert left(monkeypatch, effect, se, math.inf) == more


@pytest.mark.parametrize(
    ("effect", "se", "more"),
    [
        (3.0, 2.0, 13),  # 3 / (2 * sqrt(5 / 18)) = 2.846, and 2.766 after 17 rounds: 2.807 is needed
        (-3.0, 2.0, 13),
        (3.0, 4.0, None),
    ],
)
def test_faster_and_slower_take_as_many_as_make_the_effect_significant(
    monkeypatch: pytest.MonkeyPatch, effect: float, se: float, more: int | None
) -> None:
    assert left(monkeypatch, effect, se, math.inf) == more


def test_with_few_degrees_of_freedom_it_takes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four after five rounds, so 14 after 15 rounds (t: 2.145)."""
    assert left(monkeypatch, 0.0, 0.8, 4.0) == 10  # 2.145 * 0.8 * sqrt(5 / 15) = 0.99, and 1.03 after 14 rounds
