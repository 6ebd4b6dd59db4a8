"""Statistics on simulated series whose truth is known; every seed is fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from experiments.stats.estimate import Estimate, percentile
from experiments.stats.intervals import block_length, throughput_interval
from experiments.stats.steady_state import Steady, steady_state
from experiments.stats.verdict import Verdict, benjamini_hochberg, verdict


def correlated(random: np.random.Generator, n: int, phi: float) -> np.ndarray:
    return np.asarray(lfilter([1], [1, -phi], random.normal(size=n + 50))[50:])


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_throughput_interval_covers_the_truth_about_95_times_in_100(phi: float) -> None:
    random, hits = np.random.default_rng(1), 0
    truth = 8 / (0.1 * math.exp(0.05**2 / (1 - phi**2) / 2))
    for seed in range(300):
        times = 0.1 * np.exp(0.05 * correlated(random, 200, phi))
        found = throughput_interval(np.full(200, 8), times, seed=seed, draws=1000)
        hits += found.low < truth < found.high
    assert 0.93 <= hits / 300 <= 0.97  # 0.012 is one standard deviation; an interval of 90 % covers 0.90


def test_autocorrelation_widens_the_interval() -> None:
    random = np.random.default_rng(2)
    noise = correlated(random, 400, 0.9)
    times = 0.1 * np.exp(0.02 * noise)
    shuffled = random.permutation(times)
    together, apart = (throughput_interval(np.full(400, 8), series).relative for series in (times, shuffled))
    assert together > 2 * apart
    assert block_length(times) > 3 * block_length(shuffled)


def test_throughput_interval_is_seeded() -> None:
    times = 0.1 * np.exp(0.05 * np.random.default_rng(3).normal(size=1000))
    first = throughput_interval(np.full(1000, 8), times)
    assert first == throughput_interval(np.full(1000, 8), times)
    assert first.value == pytest.approx(8000 / times.sum())
    assert first.low < first.value < first.high


def test_throughput_interval_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="2 sample counts for 3"):
        throughput_interval([1, 1], [1, 1, 1])
    with pytest.raises(ValueError, match="not finite"):
        throughput_interval([1, 1], [1, math.nan])
    with pytest.raises(ValueError, match="more than 0"):
        throughput_interval([1, 1], [0, 0])
    assert math.isinf(throughput_interval([8, 8], [1, 1]).se)  # two steps say nothing about spread


def ratio(value: float, se: float) -> Estimate:
    return Estimate(value, value * math.exp(-2 * se), value * math.exp(2 * se), se, math.inf)


@pytest.mark.parametrize(
    ("value", "se", "q", "expected"),
    [
        (1.10, 0.01, None, Verdict.FASTER),
        (0.90, 0.01, None, Verdict.SLOWER),
        (1.001, 0.005, None, Verdict.SAME),
        (1.01, 0.001, None, Verdict.SAME),  # sure, but too small to matter
        (1.00, 0.05, None, Verdict.UNDECIDED),
        (1.10, 0.08, None, Verdict.UNDECIDED),
        (1.018, 0.008, None, Verdict.UNDECIDED),  # significant, under the minimum, and may be over it
        (1.10, 0.01, 0.2, Verdict.UNDECIDED),  # among many, not sure enough
        (1.05, 0.01, 0.01, Verdict.FASTER),
    ],
)
def test_verdict(value: float, se: float, q: float | None, expected: Verdict) -> None:
    assert verdict(ratio(value, se), minimum=0.02, q_value=q) is expected


def test_verdict_wants_a_minimum() -> None:
    with pytest.raises(ValueError, match="minimum effect"):
        verdict(ratio(1, 0.1), minimum=0)


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


@pytest.mark.parametrize("shape", ["drift", "late shift", "short"])
def test_steady_state_says_when_it_never_settles(shape: str) -> None:
    times = 0.1 * (1 + 0.02 * np.random.default_rng(8).normal(size=100))
    if shape == "drift":
        times *= np.linspace(1, 1.5, 100)
    elif shape == "late shift":
        times[70:] *= 1.3
    else:
        times = times[:7]
    found = steady_state(times)
    assert not found.settled
    assert found.start is None


def test_steady_state_false_alarms_are_rare() -> None:
    random = np.random.default_rng(9)
    alarms = sum(not steady_state(0.1 * (1 + 0.05 * correlated(random, 100, 0.5))).settled for _ in range(300))
    assert alarms / 300 < 0.05


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
    assert steady_state([0.1] * 7) == Steady(False, None, None)
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
    assert found.drift == pytest.approx(0.875 * change)
    assert (found.settled, found.start) == (settled, 0 if settled else None)
    assert steady_state(np.repeat(medians, 5), tolerance=0.18).settled


def test_benjamini_hochberg_by_hand() -> None:
    # 0.01*5/1, 0.04*5/4 carried down over 0.03*5/3 and 0.02*5/2
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.02, 0.5]) == pytest.approx([0.05, 0.05, 0.05, 0.05, 0.5])
    assert benjamini_hochberg([0.9, 0.001]) == pytest.approx([0.9, 0.002])
    assert benjamini_hochberg([]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        benjamini_hochberg([1.2])


def test_percentile() -> None:
    assert percentile([1, 2, 3, 4], 50) == 2.5
    with pytest.raises(ValueError, match="series"):
        percentile([], 50)
