"""The steady state of simulated step times whose truth is known; every seed is fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage_noise_steps import autoregressive, throttled
from experiments.stats.steady_state import Steady, steady_state


def test_steady_state_cuts_a_transient() -> None:
    random = np.random.default_rng(6)
    times = 0.1 * (1 + 0.02 * random.normal(size=200))
    assert steady_state(times).start == 0
    times[:40] *= np.linspace(2, 1, 40)
    found = steady_state(times)
    assert found.settled
    assert found.start is not None
    assert 25 <= found.start <= 45


def test_steady_state_ignores_single_slow_steps() -> None:
    times = 0.1 * (1 + 0.02 * np.random.default_rng(7).normal(size=100))
    times[[3, 30, 90]] *= 20
    found = steady_state(times)
    assert found.settled
    assert found.start == 0


@pytest.mark.parametrize("shape", ["drift", "late shift"])
def test_steady_state_says_when_it_never_settles(shape: str) -> None:
    times = 0.1 * (1 + 0.02 * np.random.default_rng(8).normal(size=100))
    if shape == "drift":
        times *= np.linspace(1, 1.5, 100)
    else:
        times[70:] *= 1.3
    found = steady_state(times)
    assert found.settled is False
    assert found.start is None


@pytest.mark.parametrize(("phi", "n"), [(0.0, 40), (0.5, 100), (0.9, 200)])
def test_steady_state_false_alarms_are_rare(phi: float, n: int) -> None:
    """At most 1 in 100; benchmarks with more windows: docs/verdicts.md."""
    times, _ = autoregressive(np.random.default_rng(9), 150, n, phi)
    assert sum(not steady_state(window).settled for window in times) <= 2


def test_a_drift_of_five_percent_is_named_and_one_of_two_percent_is_not() -> None:
    times, _ = autoregressive(np.random.default_rng(10), 100, 200, 0.5, sd=0.01)
    for change, least, most in ((0.05, 0.9, 1.0), (-0.05, 0.9, 1.0), (0.08, 1.0, 1.0), (0.02, 0.0, 0.02)):
        found = [steady_state(window * np.linspace(1, 1 + change, 200)) for window in times]
        assert least <= np.mean([not one.settled for one in found]) <= most, change
        assert np.median([one.drift for one in found if not one.settled] or [change]) == pytest.approx(change, abs=0.005)


def test_the_drift_is_that_of_a_straight_line_over_the_level_part() -> None:
    random = np.random.default_rng(11)
    times = 0.1 * np.linspace(1, 1.04, 100) * (1 + 0.002 * random.normal(size=100))
    slope, begin = np.polyfit(np.arange(100), times, 1)
    assert steady_state(times).drift == pytest.approx(99 * slope / begin)
    slow_start = np.concatenate([np.full(20, 0.3), times])
    found = steady_state(slow_start)
    assert (found.start, found.drift) == (20, pytest.approx(99 * slope / begin))


def test_a_straight_line_is_no_transient() -> None:
    """MSER alone would cut a drift's first half, and call the rest level."""
    times = 0.1 * np.linspace(1, 1.08, 100) * (1 + 0.001 * np.random.default_rng(12).normal(size=100))
    found = steady_state(times)
    assert not found.settled and found.drift == pytest.approx(0.08, abs=0.002)


def test_throttling_that_comes_and_goes_is_no_drift() -> None:
    times, _ = throttled(np.random.default_rng(13), 100, 200, dwell=5)
    assert sum(not steady_state(window).settled for window in times) <= 3


def test_kinds_of_steps_are_no_transient() -> None:
    kinds = ["image"] * 20 + ["text"] * 60
    times = np.array([{"image": 0.3, "text": 0.1}[kind] for kind in kinds]) * (1 + 0.001 * np.random.default_rng(14).normal(size=80))
    assert steady_state(times).start == 20
    found = steady_state(times, kinds=kinds)
    assert (found.settled, found.start) == (True, 0)
    assert found.drift == pytest.approx(0, abs=0.002)
    with pytest.raises(ValueError, match="79 kinds for 80 times"):
        steady_state(times, kinds=kinds[1:])


def series(*levels: tuple[int, float]) -> np.ndarray:
    """Step times at one level after another, each step beside its neighbour by 0.1 % so that medians of five differ a little."""
    times = np.concatenate([np.full(count, level) for count, level in levels])
    return times * np.where(np.arange(times.size) // 5 % 2, 1.001, 0.999)


@pytest.mark.parametrize(
    ("slow", "start"),
    [(0, 0), (5, 5), (10, 10), (12, 10), (13, 15), (20, 20)],  # by fives; the middle one of five steps decides
)
def test_steady_state_cuts_what_mser_says(slow: int, start: int) -> None:
    found = steady_state(series((slow, 0.2), (40 - slow, 0.1)))
    assert (found.settled, found.start) == (True, start)


def test_steady_state_cuts_no_more_than_half() -> None:
    assert steady_state(series((40, 0.2), (40, 0.1))).start == 40
    assert steady_state(series((45, 0.2), (35, 0.1))).start == 40


def test_steady_state_drops_nothing_for_less_than_two_percent() -> None:
    for above, start in ((0.019, 0), (0.021, 10), (-0.019, 0), (-0.021, 10)):
        times = np.repeat([1 + above, 1.0], [10, 30])
        assert steady_state(times).start == start, above


def test_steady_state_of_few_steps_takes_them_one_by_one_or_two_by_two() -> None:
    assert steady_state([0.1] * 7) == Steady(None, None, None), "too few to tell"
    assert steady_state([0.5] * 8) == Steady(True, 0, 0.0)
    assert steady_state([0.5] * 3 + [0.25] * 12).start == 3
    assert steady_state([0.5] * 3 + [0.25] * 13).start == 4
    assert steady_state([0.5] * 5 + [0.25] * 19).start == 6  # two of the second three are slow
    left_over = steady_state([0.5] * 40 + [9.9] * 4)
    assert (left_over.start, left_over.drift) == (0, 0.0), "what is left over after the last five is not looked at"


@pytest.mark.parametrize(
    ("change", "wiggle", "settled"),
    [
        (0.056, 0.028, True),  # 4.9 %: under the tolerance, though by 3.3 standard errors
        (0.058, 0.029, False),  # 5.1 %
        (-0.056, 0.017, True),
        (-0.058, 0.017, False),
        (0.2, 0.11, False),  # 17.5 %, by 3.05 standard errors
        (0.2, 0.115, True),  # by 2.92
        (-0.2, 0.083, False),
        (-0.2, 0.091, True),
    ],
)
def test_steady_state_wants_both_halves_alike_or_too_noisy_to_tell(change: float, wiggle: float, settled: bool) -> None:
    """Sixteen medians, of which the last seven lie higher: MSER cuts none of them."""
    place = np.arange(16)
    medians = 0.1 * (np.where(place < 9, 1, 1 + change) + np.where(place % 2, -wiggle, wiggle))
    first, second = medians[:8], medians[8:]
    errors = abs(second.mean() - first.mean()) / math.hypot(stats.sem(first), stats.sem(second))
    assert settled == (abs(0.875 * change) < 0.05 or errors < 3) and (3.5 > errors > 2.8 or change < 0)
    found = steady_state(np.repeat(medians, 5))
    slope, begin = np.polyfit(np.arange(80), np.repeat(medians, 5), 1)
    assert found.drift == pytest.approx(79 * slope / begin)
    assert (found.settled, found.start) == (settled, 0 if settled else None)
    assert steady_state(np.repeat(medians, 5), tolerance=0.18).settled


def test_a_line_that_begins_at_0_or_below_has_no_relative_drift() -> None:
    """Times that grow from almost nothing: infinity would be a result that cannot be written."""
    found = steady_state([0.001] * 40 + [0.001 * 1.12**step for step in range(80)])
    assert found.drift is None or math.isfinite(found.drift)
    with_kinds = [steady_state([*([1e-4] * (200 - late)), *([1.0] * late)]).drift for late in (20, 40, 60)]
    assert all(drift is None or math.isfinite(drift) for drift in with_kinds)
