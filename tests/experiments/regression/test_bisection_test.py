"""Deciding between two commits, and finding the first bad one of many, with made-up trials."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from experiments.regression.bisection_test import Side, difference, interim_pairs, side_of
from tasks.nightly.bisect import search
from tests.tasks.nightly.bisect_support import pairs_of

COMMITS = [f"{number:02d}" + "c" * 38 for number in range(1, 17)]
GOOD = "00" + "c" * 38


def trials(first_bad: str | None, effect: float, noise: float, seed: int = 0) -> Callable[[str], float]:
    random = np.random.default_rng(seed)
    return lambda commit: (math.log1p(-effect) if first_bad and commit >= first_bad else 0.0) + noise * float(random.normal())


def test_interim_analyses_end_where_they_must() -> None:
    assert interim_pairs(12) == [3, 5, 8, 12]
    assert interim_pairs(3) == [3] and interim_pairs(4) == [3, 4] and interim_pairs(20)[-1] == 20


def test_a_clear_difference_is_decided_early_and_noise_is_not() -> None:
    assert side_of([-0.08, -0.081, -0.079], -0.04, 4) is Side.BELOW
    assert side_of([0.001, -0.001, 0.0], -0.04, 4) is Side.ABOVE
    assert side_of([-0.08, 0.05, -0.02], -0.04, 4) is Side.OPEN
    assert side_of([-0.08], -0.04, 4) is Side.OPEN
    with pytest.raises(ValueError, match="two pairs"):
        difference([0.1], 0.95)


def test_wrong_turns_are_rarer_than_promised() -> None:
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(400):
        pairs = list(-0.04 + 0.02 * random.normal(size=12))  # exactly on the threshold: either answer is wrong
        wrong += any(side_of(pairs[:count], -0.04, 4) is not Side.OPEN for count in interim_pairs(12))
    assert wrong / 400 < 0.06


@pytest.mark.parametrize("place", [0, 1, 7, 15])
def test_the_first_bad_commit_is_found(place: int) -> None:
    found = search(COMMITS, GOOD, pairs_of(trials(COMMITS[place], 0.08, 0.01, place)), 12, 0.03)
    assert found.commit == COMMITS[place]
    assert found.effect is not None and found.effect.value == pytest.approx(0.92, abs=0.02)
    assert len(found.steps) <= 4  # halving
    assert COMMITS[place] in found.sentence


def test_where_there_is_nothing_nothing_is_found() -> None:
    same = search(COMMITS, GOOD, pairs_of(trials(None, 0.0, 0.01)), 8, 0.03)
    assert same.commit is None and "nothing to bisect" in same.sentence
    small = search(COMMITS, GOOD, pairs_of(trials(COMMITS[3], 0.01, 0.0005)), 8, 0.03)
    assert small.commit is None and "nothing to bisect" in small.sentence  # clear, but less than what matters
    noisy = search(COMMITS, GOOD, pairs_of(trials(None, 0.0, 0.2)), 8, 0.03)
    assert noisy.effect is not None and noisy.effect.low < 0.97 < noisy.effect.high
    worst = 100 * (1 - noisy.effect.low)
    assert f"worse by up to {worst:.1f} % is not ruled out: more pairs" in noisy.sentence and "nothing" not in noisy.sentence


def test_noise_ends_in_a_range_and_says_what_would_help() -> None:
    middle = COMMITS[7]
    calm = trials(COMMITS[4], 0.08, 0.004)
    rough = np.random.default_rng(5)
    noisy = pairs_of(lambda commit: calm(commit) + (0.2 * float(rough.normal()) if commit == middle else 0.0))
    found = search(COMMITS, GOOD, noisy, 5, 0.03)
    assert found.commit is None and found.between == (GOOD, COMMITS[-1])
    assert "stays undecided after 5 pairs" in found.sentence and "--most" in found.sentence


def test_trials_of_both_are_taken_by_turns() -> None:
    order: list[str] = []
    measure = trials(COMMITS[0], 0.08, 0.0)

    def watched(commit: str) -> float:
        order.append(commit)
        return measure(commit)

    search(COMMITS[:1], GOOD, pairs_of(watched), 3, 0.03)
    assert order == [GOOD, COMMITS[0], COMMITS[0], GOOD, GOOD, COMMITS[0]]


def test_interim_analyses_by_hand() -> None:
    assert interim_pairs(30) == [3, 5, 8, 12, 17, 23, 30]
    assert interim_pairs(31) == [3, 5, 8, 12, 17, 23, 30, 31]
    assert [interim_pairs(most) for most in (1, 2, 5, 6)] == [[1], [2], [3, 5], [3, 5, 6]]


def test_a_difference_has_students_interval() -> None:
    pairs = [0.01, 0.03, 0.08]
    low, high = stats.t.interval(0.95, 2, np.mean(pairs), stats.sem(pairs))
    found = difference(pairs, 0.95)
    assert (found.value, found.low, found.high) == pytest.approx((math.exp(0.04), math.exp(low), math.exp(high)))
    assert (found.se, found.df, found.n) == (pytest.approx(stats.sem(pairs)), 2, 3)
    two = difference([0.0, 0.02], 0.9)
    assert math.log(two.high) == pytest.approx(0.01 + 6.313751515 * 0.01)
    assert difference([0.01, 0.01], 0.95).se == 5e-4, "no difference is known better than a night's resolution"


def test_a_side_is_told_where_the_interval_of_all_tries_ends() -> None:
    pairs = [-0.02, 0.0, 0.02]
    for tries, t in ((1, 4.302652730), (4, stats.t.ppf(1 - 0.05 / 8, 2))):
        half = t * 0.02 / math.sqrt(3)
        for more, sides in ((1e-6, (Side.BELOW, Side.ABOVE)), (-1e-6, (Side.OPEN, Side.OPEN))):
            assert (side_of(pairs, half + more, tries), side_of(pairs, -half - more, tries)) == sides
    assert side_of([-0.08, -0.08], 0.0, 1) is Side.BELOW
    assert side_of([], 0.0, 1) is Side.OPEN
