"""Statistics on simulated series whose truth is known; every seed is fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.stats.estimate import Estimate, percentile
from experiments.stats.intervals import pooled_spread, repeats_interval
from experiments.stats.ratio import ratio_interval
from experiments.stats.verdict import Verdict, benjamini_hochberg, verdict


def single(value: float, se: float = 0.001) -> Estimate:
    return Estimate(value, value * math.exp(-1.96 * se), value * math.exp(1.96 * se), se, math.inf)


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_repeats_interval_covers_with_own_and_pooled_spread(repeats: int) -> None:
    random = np.random.default_rng(4)
    own = pooled = 0
    for _ in range(300):
        cells = 100 * np.exp(0.02 * random.normal(size=(6, repeats)))
        mine = [single(value) for value in cells[0]]
        spread = pooled_spread(list(cells))
        assert spread[1] == 6 * (repeats - 1)
        own += (found := repeats_interval(mine)).low < 100 < found.high
        pooled += (found := repeats_interval(mine, spread=spread)).low < 100 < found.high
    assert 0.90 <= own / 300 <= 0.99
    assert 0.90 <= pooled / 300 <= 0.99


def test_repeats_dominate_but_never_hide_what_the_steps_show() -> None:
    one = single(100, se=0.03)
    assert repeats_interval([one]) is one
    alike = repeats_interval([single(100, se=0.03)] * 3)
    assert alike.se == pytest.approx(0.03 / math.sqrt(3))
    apart = repeats_interval([single(90), single(100), single(110)])
    assert apart.relative > 0.15
    with pytest.raises(ValueError, match="no repeats"):
        repeats_interval([])


def test_interleaved_repeats_pair_so_that_drift_cancels() -> None:
    drift = [1.0, 0.9, 0.8, 0.7]
    a = [single(110 * d * e) for d, e in zip(drift, [1, 1.001, 0.999, 1], strict=True)]
    b = [single(100 * d) for d in drift]
    paired, unpaired = ratio_interval(a, b), ratio_interval(a, b, paired=False)
    assert paired.value == pytest.approx(1.1, rel=1e-3)
    assert 1.09 < paired.low < paired.high < 1.11
    assert unpaired.low < 1 < unpaired.high
    assert ratio_interval(b, a).value == pytest.approx(1 / paired.value)


def test_ratio_of_single_trials_adds_their_errors() -> None:
    found = ratio_interval([single(110, 0.03)], [single(100, 0.04)])
    assert found.se == pytest.approx(0.05)
    unknown = ratio_interval([Estimate(110, 0, math.inf, math.inf, 1)], [single(100)])
    assert unknown.value == pytest.approx(1.1)
    assert unknown.p_value > 0.99
    assert verdict(unknown, minimum=0.02) is Verdict.UNDECIDED


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
        (1.05, 0.04, 0.01, Verdict.FASTER),
    ],
)
def test_verdict(value: float, se: float, q: float | None, expected: Verdict) -> None:
    assert verdict(ratio(value, se), minimum=0.02, q_value=q) is expected


def test_verdict_wants_a_minimum() -> None:
    with pytest.raises(ValueError, match="minimum effect"):
        verdict(ratio(1, 0.1), minimum=0)


def test_same_against_same_is_rarely_called_different() -> None:
    random, wrong = np.random.default_rng(5), 0
    for _ in range(300):
        a, b = ([single(v) for v in 100 * np.exp(0.02 * random.normal(size=4))] for _ in range(2))
        wrong += verdict(ratio_interval(a, b), minimum=0.001) in (Verdict.FASTER, Verdict.SLOWER)
    assert wrong / 300 < 0.09


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
