"""How many loaders are enough, of rates that are made up."""

from __future__ import annotations

import math

import pytest

from benchmarks.bench_loader import arms, counts
from benchmarks.saturation import middle, saturation, sentence, steps

WOBBLE = (0.98, 1.0, 1.0 / 0.98)  # of three rounds, all loaders alike: it cancels within a round


def rounds(rate: float) -> list[float]:
    return [rate * share for share in WOBBLE]


def test_the_smallest_number_after_which_the_next_adds_less_than_five_percent_is_enough() -> None:
    rates = {0: rounds(110), 1: rounds(110), 2: rounds(200), 4: rounds(200 * 1.0499), 8: rounds(200 * 1.2)}
    found = steps(rates)
    assert [(step.workers, step.following, step.adds) for step in found] == [(1, 2, True), (2, 4, False), (4, 8, True)], "not 0"
    enough = saturation(found)
    assert enough is not None and enough.workers == 2 and enough.certain
    assert enough.gain.value == pytest.approx(1.0499) and enough.gain.high == pytest.approx(1.0499)
    assert saturation(steps({1: rounds(100), 2: rounds(105.01)})) is None


def test_what_rounds_do_not_agree_on_is_said_as_perhaps() -> None:
    rates = {1: [100.0, 100.0, 100.0], 2: [98.0, 103.0, 109.0]}
    enough = saturation(steps(rates))
    assert enough is not None and not enough.certain and enough.gain.high > 1.05
    assert sentence("threads", rates, [200.0]).startswith("threads saturate perhaps at 1 (100 samples/s): 2 add +3.2 % (-")


def test_the_sentence_says_what_the_saturated_loaders_feed() -> None:
    rates = {0: rounds(100), 1: rounds(150), 2: rounds(150)}
    assert sentence("processes", rates, [300.0, 75.0]) == (
        "processes saturate at 1 (150 samples/s): 2 add +0.0 % (+0.0 % to +0.0 %). "
        "That feeds 0.5 devices at 300 samples/s each or 2 devices at 75 samples/s each."
    )
    assert sentence("threads", {1: [100.0], 2: [190.0]}, [95.0]) == (
        "threads: no saturation up to 2 (190 samples/s): the last step added +90.0 % (of an interval too wide to use). "
        "That feeds 2 devices at 95 samples/s each."
    )
    assert (
        sentence("threads", {1: [100.0]}, [50.0])
        == "threads: no saturation up to 1 (100 samples/s). That feeds 2 devices at 50 samples/s each."
    )


def test_numbers_go_beyond_the_cores_once_and_nobody_loads_in_no_thread() -> None:
    assert (counts(1), counts(2), counts(3), counts(16)) == ([0, 1, 2], [0, 1, 2, 4], [0, 1, 2, 4], [0, 1, 2, 4, 8, 16, 32])
    assert arms([2, 0, 1, 1]) == [("processes", 0), ("processes", 1), ("processes", 2), ("threads", 1), ("threads", 2)]
    assert arms([1]) == [("processes", 1), ("threads", 1)]
    assert middle([1.0, 4.0]) == pytest.approx(2.0) and math.isclose(middle(rounds(7)), 7)
