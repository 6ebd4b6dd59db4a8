"""The loss-parity test in numbers worked out by hand. Its error rates under simulated noise: benchmarks/bench_parity.py, and below."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.loss_curves import FAMILIES, draw
from experiments.stats.loss_parity import MARGIN, MINIMUM_STEPS, Parity, ParityStatus, _left_at, _step_variance, loss_parity

PROVEN, STRUCK, UNPROVEN = ParityStatus.PROVEN, ParityStatus.STRUCK, ParityStatus.UNPROVEN
T2 = float(stats.t.ppf(0.995, 2))  # 9.92
LARGEST = math.sqrt(2 / stats.chi2.ppf(0.05, 2))  # 4.42: of a standard error with 2 degrees of freedom, 95 % confidence


def fall(n: int = 200, level: float = 2.0) -> np.ndarray:
    """A loss that has fallen to `level` after a twentieth of its steps."""
    return np.where(np.arange(n) < n // 20, 2 * level, level)


def judged(shares: tuple[float, ...], n: int = 200, **more: bool) -> Parity:
    """Pairs of equal seed that differ by these shares of the loss at every step."""
    reference = {seed: fall(n) for seed in range(max(3, len(shares)))}
    return loss_parity({seed: fall(n) * (1 + share) for seed, share in enumerate(shares)}, reference, **more)


def test_the_error_is_that_of_the_pairs() -> None:
    found = judged((0.001, 0.002, 0.003))
    se = 0.001 / math.sqrt(3)
    assert (found.status, found.pairs, found.seeds, found.steps, found.left_at) == (PROVEN, 3, 3, 200, None)
    half = stats.t.ppf(0.95, 2) * se
    assert (found.difference, found.low, found.high) == pytest.approx((0.002, 0.002 - half, 0.002 + half))
    assert found.bound == pytest.approx(T2 * se) and T2 * se > MARGIN
    z = stats.norm.ppf(0.9)
    assert found.smallest == pytest.approx(T2 * se + z * LARGEST * se)
    close = judged((0.0002, 0.0002, 0.0002))
    assert (close.bound, close.smallest) == pytest.approx((MARGIN, MARGIN)), "the margin at least"


@pytest.mark.parametrize("sign", [-1, 1])
def test_struck_is_more_than_the_margin_and_more_than_chance(sign: int) -> None:
    def shifted(middle: float, apart: float) -> ParityStatus:
        return judged((sign * (middle - apart), sign * middle, sign * (middle + apart))).status

    assert shifted(0.0051, 0.0) is STRUCK and shifted(0.0049, 0.0) is PROVEN
    edge = T2 * 0.002 / math.sqrt(3)  # 1.15 %
    assert shifted(edge * 1.01, 0.002) is STRUCK and shifted(edge * 0.99, 0.002) is UNPROVEN


def test_proven_is_the_interval_within_the_margin_in_each_half_of_what_is_judged() -> None:
    half = stats.t.ppf(0.95, 2) * 0.001 / math.sqrt(3)  # 0.17 %
    for middle, status in ((MARGIN - half * 1.01, PROVEN), (MARGIN - half * 0.99, UNPROVEN)):
        assert judged((middle - 0.001, middle, middle + 0.001)).status is status
    grows = fall() * np.where(np.arange(200) < 150, 1.0, 1.006)
    found = loss_parity(dict.fromkeys(range(3), grows), {seed: fall() for seed in range(3)})
    assert found.difference == pytest.approx(0.003) and found.status is UNPROVEN, "0.3 % in all, 0.6 % in the last quarter"
    before = fall(400) * np.where(np.arange(400) // 100 == 2, 1.006, 1.0)
    found = loss_parity(dict.fromkeys(range(3), before), {seed: fall(400) for seed in range(3)})
    assert found.difference == pytest.approx(0.003) and found.status is UNPROVEN, "0.6 % in the third quarter"
    early = fall() * np.where(np.arange(200) < 100, 1.5, 1.0)
    assert loss_parity(dict.fromkeys(range(3), early), {seed: fall() for seed in range(3)}).status is PROVEN, "the first half is not judged"


def test_a_difference_is_relative_to_the_references_mean() -> None:
    reference = {seed: -fall() * (seed + 1) for seed in range(3)}
    found = loss_parity({seed: curve + 0.02 * (seed + 1) for seed, curve in reference.items()}, reference)
    assert (found.difference, found.status) == (pytest.approx(0.01), STRUCK), "a negative loss too"
    zero = loss_parity({seed: fall() for seed in range(3)}, {seed: np.zeros(200) for seed in range(3)})
    assert zero.status is UNPROVEN and "is 0" in zero.why


def test_fewer_pairs_are_judged_by_the_spread_between_seeds() -> None:
    reference = {seed: fall(level=2.0 * (1 + share)) for seed, share in enumerate((-0.01, 0.0, 0.01))}
    found = loss_parity({1: fall() * 1.05}, reference)
    se = math.sqrt(2) * 0.01
    assert (found.status, found.pairs, found.recommended) == (UNPROVEN, 1, None)
    assert found.bound == pytest.approx(T2 * se) and found.difference == pytest.approx(0.05)
    assert loss_parity({1: fall() * (1 + T2 * se * 1.01)}, reference).status is STRUCK
    two = loss_parity({seed: reference[seed] for seed in (0, 1)}, reference)
    assert two.bound == pytest.approx(T2 * 0.01), "two pairs: half the variance"


def test_the_variance_over_steps_counts_where_there_are_few_pairs() -> None:
    saw = 0.02 * np.where(np.arange(1600) // 100 % 2, -1, 1)  # one block up, the next down
    found = loss_parity({0: fall(1600) + saw}, {seed: fall(1600) for seed in range(3)})
    blocks = 0.01 * math.sqrt(8 / 7) / math.sqrt(8)
    assert found.bound is not None and found.bound >= stats.t.ppf(0.995, 7) * blocks


def test_without_training_one_seed_is_enough_and_nothing_has_to_be_learnt() -> None:
    level = np.full(40, 2.0)
    found = loss_parity({0: level * 1.001}, {0: level}, trains=False)
    assert (found.status, found.difference) == (PROVEN, pytest.approx(0.001))
    assert loss_parity({0: level * 1.01}, {0: level}, trains=False).status is STRUCK
    assert loss_parity({0: level}, {0: level}).why == "1 of 3 seeds of the reference"


def test_without_training_differences_up_and_down_do_not_cancel() -> None:
    """Neither over many steps nor over seeds: another output is not the same because it is higher here and lower there."""
    level, noise = np.full(2000, 2.0), np.random.default_rng(0).standard_normal(2000)
    for share, status in ((0.004, PROVEN), (0.01, UNPROVEN), (0.3, UNPROVEN)):
        found = loss_parity({0: level * (1 + share * (noise - noise[1000:].mean()))}, {0: level}, trains=False)
        assert found.status is status and found.difference == pytest.approx(0, abs=1e-9)
    seeds = {0: level * 1.03, 1: level * 0.97}
    why = loss_parity(seeds, dict.fromkeys(seeds, level), trains=False).why
    assert why == "its losses differ by 3 % a batch, up or down, and no more than 0.5 % counts as equal"
    above = {0: level * 1.00501, 1: level * 0.99499}
    assert "0.501 % a batch, up or down, and no more than 0.5 %" in loss_parity(above, dict.fromkeys(above, level), trains=False).why
    near = loss_parity({0: level * (1 + 0.006 * noise)}, {0: level}, trains=False)
    assert near.why == "its losses differ by 0.495 % a batch, up or down, too near the 0.5 % that counts as equal: more may show it"


def test_what_is_too_short_or_learns_nothing_proves_nothing() -> None:
    assert judged((0.0, 0.0, 0.0), 99).why == "99 steps are too few" and judged((0.0, 0.0, 0.0), 100).status is PROVEN
    assert judged((0.02, 0.02, 0.02), 8).status is STRUCK, "what differs may show at once"
    assert judged((0.02, 0.02, 0.02), 7).why == "7 steps in common are too few to judge a loss curve"
    for start, status in ((1.0205, PROVEN), (1.0203, UNPROVEN), (-1.0, UNPROVEN)):  # 2 % of what it starts at
        curves = {seed: np.where(np.arange(200) < 100, 2.0 * start, math.copysign(2.0, start)) for seed in range(3)}
        found = loss_parity(curves, curves)
        assert found.status is status and ("not learnt" in found.why) == (status is UNPROVEN)


def test_only_seeds_and_steps_in_common_are_compared() -> None:
    assert loss_parity({7: fall()}, {seed: fall() for seed in range(3)}).why == "no seed in common with the reference"
    curves = {seed: fall(200) for seed in range(3)}
    longer = {seed: np.concatenate([fall(200), np.full(50, 9.0)]) for seed in range(3)}
    found = loss_parity(longer, curves)
    assert (found.status, found.steps) == (PROVEN, 200)
    assert loss_parity({**curves, 9: fall() * 2}, curves).pairs == 3


def test_a_loss_that_is_not_finite_is_struck_where_it_stops() -> None:
    broken = fall()
    broken[149] = math.inf
    curves = {seed: fall() for seed in range(3)}
    found = loss_parity({**curves, 1: broken}, curves)
    assert (found.status, found.left_at, found.difference) == (STRUCK, 150, math.inf)
    assert loss_parity({0: broken}, {0: fall()}).status is STRUCK, "however few seeds there are"
    with pytest.raises(ValueError, match="reference's loss is not finite"):
        loss_parity(curves, {**curves, 1: broken})


def test_a_loss_that_was_not_recorded_shows_nothing() -> None:
    unknown = fall()
    unknown[149] = math.nan
    curves = {seed: fall() for seed in range(3)}
    for candidate, reference in (({**curves, 1: unknown}, curves), (curves, {**curves, 1: unknown})):
        found = loss_parity(candidate, reference)
        assert (found.status, found.why, found.difference) == (UNPROVEN, "some losses were not recorded", None)
    broken = unknown.copy()
    broken[150] = math.inf
    assert loss_parity({**curves, 1: broken}, curves).left_at == 151, "what is known to have broken is struck"
    broken[149] = math.inf
    assert loss_parity({**curves, 1: broken}, {**curves, 1: unknown}).left_at == 151, "from where the reference is known"
    longer = {seed: np.append(curve, math.nan) for seed, curve in curves.items()}
    assert loss_parity(longer, curves).status is PROVEN, "beyond the steps in common nothing is missing"


def test_where_a_curve_left_is_the_block_from_which_it_stays_outside() -> None:
    reference = {seed: fall(160) for seed in range(3)}

    def left(*ranges: tuple[int, int]) -> int | None:
        curve = fall(160)
        for start, end in ranges:
            curve[start:end] *= 1.05
        return loss_parity(dict.fromkeys(range(3), curve), reference).left_at

    assert left((0, 160)) == 1 and left((90, 160)) == 91
    assert left((20, 40), (120, 160)) == 121, "it was back between"
    assert left((90, 150)) == 81, "back at the end: where judging begins"
    assert _left_at(np.array([10, 20, 30, 40]), np.array([0.0, 0.007, 0.02, 0.02])) == 11, "0.7 % is outside"
    found = judged((0.02, 0.02, 0.02), 160)
    assert found.ends.tolist() == list(range(10, 161, 10)) and found.curve == pytest.approx(np.full(16, 0.02))


def test_the_recommended_length_goes_by_the_upper_limit_of_the_steps_noise() -> None:
    noise = np.random.default_rng(1).standard_normal(2000)
    found = loss_parity({0: 2.0 * (1 + 0.3 * (noise - noise[1000:].mean()))}, {0: np.full(2000, 2.0)}, trains=False)
    assert found.bound is not None and found.bound > MARGIN and found.recommended is not None
    t, z, largest = stats.t.ppf(0.995, 7), stats.norm.ppf(0.9), math.sqrt(7 / stats.chi2.ppf(0.05, 7))
    variance = (found.bound / t) ** 2 * 7 / stats.chi2.ppf(0.1, 7)
    length = 2000 * variance * ((t + z * largest) / 0.01) ** 2
    assert length <= found.recommended <= length + 2


def test_a_loss_that_breaks_in_two_seeds_left_where_the_first_of_them_did() -> None:
    late, early = fall(), fall()
    late[149], early[119] = math.inf, math.inf
    assert loss_parity({0: late, 1: early, 2: fall()}, {seed: fall() for seed in range(3)}).left_at == 120


def test_the_recommended_length_is_that_at_which_one_percent_is_found() -> None:
    family = next(family for family in FAMILIES if family.name == "autocorrelated 0.8")
    random = np.random.default_rng(5)
    lengths = [loss_parity(*draw(family, random, 400, pairs=3, seeds=3, divergence=0.0)).recommended for _ in range(60)]
    known = [length for length in lengths if length is not None]
    assert len(known) > 40 and 300 < np.median(known) < 1200
    again = [loss_parity(*draw(family, random, length, pairs=3, seeds=3, divergence=0.01)).status for length in known]
    assert np.mean([status is STRUCK for status in again]) >= 0.9
    assert judged((0.001, 0.002, 0.004)).recommended is None, "pairs that lie apart by no step's noise: more steps would not help"
    assert judged((0.0, 0.0, 0.0)).recommended == MINIMUM_STEPS and judged((0.0, 0.0)).recommended is None, "a pair is missing"


def test_the_variance_of_a_mean_allows_for_the_bias_of_a_short_series_autocorrelation() -> None:
    series = np.array([1.0, 2, 1, 3, 2, 1, 2, 3, 4, 3, 2, 3])
    apart = series - series.mean()
    rho = (apart[1:] @ apart[:-1]) / (apart @ apart)
    rho += (1 + 3 * rho) / 12
    assert _step_variance(series) == pytest.approx(series.var() / 12 * (1 + rho) / (1 - rho)) == pytest.approx(0.14787, abs=5e-6)


def test_the_variance_of_a_mean_is_that_of_eight_blocks_where_steps_follow_each_other_too_little_to_show_it() -> None:
    """Blocks of 100 steps at 1 and -1 in turns; steps within them alternate by 3, so that neighbours go apart."""
    at = np.arange(800)
    series = np.where(at // 100 % 2, -1.0, 1.0) + np.where(at % 2, -3.0, 3.0)
    assert _step_variance(series) == pytest.approx(8 / 7 / 8), "the variance of eight means of size 1, over 8"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_equal_trainings_are_not_struck_and_a_divergence_is_never_proven(family: object) -> None:
    random = np.random.default_rng(11)
    for pairs in (1, 3):
        equal = [loss_parity(*draw(family, random, 200, pairs=pairs, seeds=3, divergence=0.0)).status for _ in range(150)]  # type: ignore[arg-type]
        assert sum(status is STRUCK for status in equal) <= 5, "1 %: more than 5 of 150 has a chance of 0.4 %"
        one = [loss_parity(*draw(family, random, 200, pairs=pairs, seeds=3, divergence=0.01)).status for _ in range(50)]  # type: ignore[arg-type]
        assert sum(status is PROVEN for status in one) <= 2


@pytest.mark.parametrize(("first", "last", "share"), [(4.0, 1.0, 0.25), (1.0, 1e-5, 1e-5), (-1.0, -3.0, 3.0), (2.0, 2.0, 1.0)])
def test_how_far_the_references_loss_fell_is_told_whatever_the_verdict(first: float, last: float, share: float) -> None:
    curve = np.where(np.arange(200) < 10, first, last)  # the first twentieth, and the rest
    found = loss_parity(dict.fromkeys(range(3), curve * 1.2), dict.fromkeys(range(3), curve))
    assert found.fell_to == pytest.approx(share)
    assert found.status is ParityStatus.STRUCK
