from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from experiments.stats.estimate import t_value
from experiments.stats.spread import Spread
from experiments.stats.variances import SampleVariance, learn_variances, sample_variances


def half_width(spread: Spread) -> float:
    return t_value(0.95, spread.df) * spread.sd


def samples(seed: int, sds: list[float], df: int = 2) -> list[SampleVariance]:
    rng = np.random.default_rng(seed)
    return [SampleVariance(float(sd**2 * rng.chisquare(df) / df), df) for sd in sds]


def test_sample_variances_of_groups() -> None:
    assert sample_variances([[1.0], [1.0, 3.0], [0.0, 1.0, 2.0], []]) == [SampleVariance(2.0, 1), SampleVariance(1.0, 2)]


def test_many_cells_that_are_alike_give_their_common_deviation() -> None:
    spread = learn_variances(samples(1, [0.01] * 300, df=4)).spread()
    assert spread.sd == pytest.approx(0.01, rel=0.05) and spread.df > 20
    assert half_width(spread) == pytest.approx(0.0196, rel=0.07)


def test_cells_that_differ_give_few_degrees_of_freedom_and_a_wide_interval() -> None:
    """One cell in six is ten times as noisy: Smyth's d0 is small."""
    spread = learn_variances(samples(1, [0.05 if number % 6 == 0 else 0.005 for number in range(60)])).spread()
    assert spread.df < 4
    assert half_width(spread) > 3 * 1.96 * 0.005


def test_the_law_is_recovered() -> None:
    """Variances drawn with d0 = 4: the spread is s0 t(4)."""
    rng = np.random.default_rng(3)
    sds = 0.01 * np.sqrt(4 / rng.chisquare(4, 600))
    spread = learn_variances(samples(4, sds.tolist(), df=3)).spread()
    assert spread.df == pytest.approx(4, abs=1.2)
    assert half_width(spread) == pytest.approx(0.01 * special.stdtrit(4, 0.975), rel=0.1)


def test_few_cells_are_less_sure_than_many() -> None:
    few, many = (learn_variances([SampleVariance(1e-4, 2)] * count).spread() for count in (2, 100))
    assert half_width(few) > 1.5 * half_width(many)
    assert few.df < many.df


def test_all_cells_alike_is_box_and_tiao_with_one_cell() -> None:
    """With d0 infinite and no offset the posterior is that of a variance under Jeffreys' prior: t on the sample's own df."""
    spread = learn_variances([SampleVariance(1e-4, 8)], least_d0=1e9).spread()
    assert (spread.sd, spread.df) == pytest.approx((0.01, 8), rel=0.02)


def test_no_spread_is_known_with_more_than_a_thousand_degrees_of_freedom() -> None:
    """known_spread.json holds the number, and JSON has no infinity."""
    law = learn_variances([SampleVariance(1e-4, 1e5)], least_d0=1e9)
    assert law.spread().df == 1000.0 and law.spread().sd == pytest.approx(0.01, rel=0.05)


def test_independent_df_limits_how_sure_equal_cells_are() -> None:
    """Twenty cells that all saw the same eight days' worth say what one cell says."""
    shared = learn_variances([SampleVariance(1e-4, 8)] * 20, independent_df=8, least_d0=1e9).spread()
    assert (shared.sd, shared.df) == pytest.approx((0.01, 8), rel=0.02)


def test_an_offset_is_taken_off() -> None:
    spread = learn_variances([SampleVariance(5e-4, 60, offset=4e-4)] * 5, least_d0=1e9).spread()
    assert spread.sd == pytest.approx(0.01, rel=0.1)
    nothing = learn_variances([SampleVariance(3e-4, 60, offset=4e-4)] * 5, least_d0=1e9).spread()
    assert nothing.sd < 0.005, "less than the offset: as good as nothing is left"


def test_no_noise_at_all() -> None:
    assert learn_variances([SampleVariance(0.0, 2)] * 3).spread() == Spread(0.0, 1000.0)
    one = learn_variances([SampleVariance(0.0, 2), SampleVariance(1e-4, 2), SampleVariance(1e-4, 2)]).spread()
    assert math.isfinite(one.sd) and one.sd > 0


def test_a_cells_own_variance_moves_it_to_its_own_side() -> None:
    """Smyth's moderated variance lies between the cell's own and the pool's."""
    everything = [*samples(1, [0.01] * 30, df=2), SampleVariance(0.1**2, 10)]
    law = learn_variances(everything)
    noisy, usual = law.spread_of(everything[-1]), law.spread_of(SampleVariance(0.01**2, 2))
    assert 0.05 < noisy.sd < 0.1 and noisy.df > 10
    assert usual.sd == pytest.approx(0.01, rel=0.3)
    assert law.expected(SampleVariance(0.1**2, 1000)) == pytest.approx(0.01, rel=0.02)
    assert law.expected(SampleVariance(0.1**2, 10)) < 0.01


@pytest.mark.parametrize("wrong", [[], [SampleVariance(-1, 2)], [SampleVariance(1, 0)], [SampleVariance(math.inf, 2)]])
def test_what_cannot_be_learned_from(wrong: list[SampleVariance]) -> None:
    with pytest.raises(ValueError, match="at least one finite variance"):
        learn_variances(wrong)
