"""The interval of a rate over steps: how often it holds the truth of simulated noise, and what it refuses. Every seed is fixed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats

from benchmarks.bench_coverage_steps import Coverage, markdown, measure
from benchmarks.coverage_noise_steps import FAMILIES, autoregressive
from experiments.stats.estimate import Estimate
from experiments.stats.noise_models import error_of_mean
from experiments.stats.step_interval import LEAST_EFFECTIVE, LEAST_STEPS, step_interval


def white(n: int, seed: int = 1, sd: float = 0.02) -> np.ndarray:
    return 0.1 * np.exp(sd * np.random.default_rng(seed).normal(size=n))


def estimate_of(samples: ArrayLike, times: ArrayLike, kinds: Sequence[str] | None = None) -> Estimate:
    return step_interval(samples, times, kinds=kinds).estimate


@pytest.mark.parametrize(
    ("noise", "n"),
    [("white", 40), ("AR(1) 0.5", 100), ("AR(1) 0.9", 40), ("AR(1) 0.9", 200), ("throttling, spells of 5", 100), ("heavy tails", 100)],
)
def test_it_covers_95_times_in_100(noise: str, n: int) -> None:
    """0.015 is one standard deviation; the bootstrap that was here before covered 0.63 with AR(1) 0.9 and 40 steps."""
    found = measure(noise, FAMILIES[noise], n, 200, seed=0)
    assert found.coverage is not None and 0.905 <= found.coverage <= 1
    assert found.refused <= 0.05


def test_white_noise_is_as_narrow_as_theory_and_never_refused() -> None:
    for n in (40, 100, 400):
        windows, _ = autoregressive(np.random.default_rng(n), 100, n, 0.0)
        found = [step_interval(np.full(n, 8.0), window) for window in windows]
        assert all(one.known for one in found)
        textbook = 0.02 * stats.t.ppf(0.975, n - 1) / math.sqrt(n)
        assert np.median([one.estimate.relative for one in found]) == pytest.approx(textbook, rel=0.12)
        assert 0.8 * n <= np.median([one.effective_steps for one in found if one.effective_steps]) <= n


def test_too_short_to_tell() -> None:
    assert LEAST_STEPS == 40
    times = white(40)
    assert step_interval(np.full(40, 8), times).known
    few = step_interval(np.full(39, 8), times[:39])
    assert not few.known and few.effective_steps is None
    assert (few.estimate.value, few.estimate.low, few.estimate.high) == (pytest.approx(39 * 8 / times[:39].sum()), 0, math.inf)
    assert (few.estimate.se, few.estimate.df) == (math.inf, 1)
    kinds = ["a", "b", "c", "a"] * 10
    assert not step_interval(np.full(40, 8), times, kinds=kinds).known, "two more means were taken from the same steps"
    assert step_interval(np.full(42, 8), white(42), kinds=[*kinds, "a", "b"]).known


def test_an_interval_as_wide_as_of_less_than_a_step_is_none() -> None:
    walk = 0.1 * np.exp(0.01 * np.cumsum(np.random.default_rng(3).normal(size=100)))
    found = step_interval(np.full(100, 8), walk)
    assert not found.known and math.isinf(found.estimate.se)
    assert found.effective_steps is not None and 0.5 < found.effective_steps < LEAST_EFFECTIVE


def test_the_figures_by_hand() -> None:
    times = white(60)
    found = step_interval(np.full(60, 8.0), times, level=0.9)
    rate = 480 / times.sum()
    excess = times / times.mean() - 1
    error = error_of_mean(excess)
    half = error.half_width(0.9)
    assert found.estimate.value == pytest.approx(rate)
    assert (found.estimate.se, found.estimate.df) == pytest.approx(error.t_alike(0.9))
    assert found.effective_steps == pytest.approx(excess.var(ddof=1) * (1.644854 / half) ** 2)
    beta = stats.skew(excess) / math.sqrt(found.effective_steps) / 6  # Willink's a
    ends = [half / 1.644854 * (np.cbrt(1 + 6 * beta * (z - beta)) - 1) / (2 * beta) for z in (1.644854, -1.644854)]
    assert (found.estimate.low, found.estimate.high) == pytest.approx((rate / (1 - ends[1]), rate / (1 - ends[0])))


def test_rare_slow_steps_move_the_lower_end() -> None:
    times = white(100, sd=0.005)
    times[[20, 50, 80]] *= 1.2
    found = estimate_of(np.full(100, 8), times)
    assert found.value - found.low > 1.5 * (found.high - found.value)


def test_kinds_of_steps_are_no_noise() -> None:
    """Three kinds drawn at random: as noise they would be +-10 %; with their mix given only what varies within each remains."""
    random = np.random.default_rng(3)
    kinds = [("image", "pair", "text")[place] for place in random.integers(0, 3, 120)]
    cost = {"image": 1.0, "pair": 2.0, "text": 0.4}
    times = white(120) * [cost[kind] for kind in kinds]
    mixed, apart = estimate_of(np.full(120, 8), times), estimate_of(np.full(120, 8), times, kinds=kinds)
    assert mixed.value == apart.value
    assert mixed.relative > 0.08
    spread = math.sqrt(np.mean([cost[kind] ** 2 for kind in kinds])) / np.mean([cost[kind] for kind in kinds])
    assert apart.relative == pytest.approx(1.96 * 0.02 * spread / math.sqrt(120), rel=0.2)


def test_kinds_with_their_own_numbers_of_samples() -> None:
    kinds = ["long", "short"] * 30
    times, samples = white(60) * np.tile([2.0, 1.0], 30), np.tile([8, 4], 30)
    plain = estimate_of(np.tile([8, 8], 30), white(60))
    assert estimate_of(samples, times).relative == pytest.approx(plain.relative, rel=0.25), "longer, with more samples: one rate"
    assert estimate_of(samples, times, kinds=kinds).relative == pytest.approx(plain.relative, rel=0.25)


def test_steps_without_spread_have_none() -> None:
    for n in (40, 1001):
        found = step_interval([8] * n, [0.125] * n)
        assert found.estimate == estimate_of([4] * n, [0.0625] * n)
        assert (found.estimate.low, found.estimate.high, found.estimate.se, found.effective_steps) == (64, 64, 0, n)


def test_effective_steps_are_at_most_the_steps() -> None:
    """Steps that alternate make a mean far surer than as many independent ones would."""
    assert step_interval(np.ones(1200), np.tile([1.1, 0.9], 600)).effective_steps == 1200


def test_long_series_are_averaged_over_blocks() -> None:
    times = white(1503)
    found = estimate_of(np.full(1503, 8), times)
    assert found.value == pytest.approx(1503 * 8 / times.sum())
    assert found.relative == pytest.approx(1.96 * times.std() / times.mean() / math.sqrt(1503), rel=0.15)
    blocks = times[:1500].reshape(-1, 4)[:375].mean(1)  # 1503 = 4 blocks' worth of 500, less: 375 blocks of 4
    assert found.se == pytest.approx(error_of_mean(blocks / times.mean() - blocks.mean() / times.mean()).t_alike(0.95)[0], rel=0.01)


def test_it_refuses_what_cannot_be() -> None:
    for samples, times, kinds, why in (
        ([1, 1], [1, 1, 1], None, "2 sample counts for 3"),
        ([1, 1], [1, math.nan], None, "not finite"),
        ([1, 1], [0, 0], None, "more than 0"),
        ([0, 0], [1, 1], None, "more than 0"),
        ([1, 1], [1, 1], ["a"], "1 kinds for 2 steps"),
    ):
        with pytest.raises(ValueError, match=why):
            step_interval(samples, times, kinds=kinds)


def test_the_table_of_coverage() -> None:
    results = [Coverage("white", 20, None, 1.0, 0.0, None), Coverage("white", 40, 0.9512, 0.011, 0.04, 0.0071)]
    assert markdown(results).splitlines() == [
        "| noise | 20 steps | 40 steps |",
        "| :-- | --: | --: |",
        "| white | too short to tell | 95.1 %, ±0.71 %, 1 % refused |",
    ]
    assert measure("white", FAMILIES["white"], 40, 20, 3) == measure("white", FAMILIES["white"], 40, 20, 3)
