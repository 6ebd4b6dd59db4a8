"""Statistics on simulated series whose truth is known; every seed is fixed."""

from __future__ import annotations

import math

import pytest

from experiments.stats.estimate import Estimate, percentile
from experiments.stats.verdict import Verdict, benjamini_hochberg, verdict


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


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(-0.019, 0.019, Verdict.SAME), (-0.02, 0.01, Verdict.UNDECIDED), (-0.01, 0.02, Verdict.UNDECIDED)]
)
def test_a_difference_is_the_same_only_where_no_end_reaches_the_minimum(low: float, high: float, expected: Verdict) -> None:
    assert verdict(Estimate(0.0, low, high, 0.01, 4, linear=True), minimum=0.02) is expected


def test_verdict_wants_a_minimum() -> None:
    with pytest.raises(ValueError, match="minimum effect"):
        verdict(ratio(1, 0.1), minimum=0)


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
