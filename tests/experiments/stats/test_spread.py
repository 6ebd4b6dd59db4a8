"""The spread between trials: of a cell's own repeats, and with what past sweeps know, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.stats.spread import Spread, far_wider, mean_error, spread_of, spreads_differ


@pytest.mark.parametrize(("sd", "df"), [(-0.01, 3), (math.inf, 3), (math.nan, 3), (0.01, 0), (0.01, -1)])
def test_what_is_no_spread(sd: float, df: float) -> None:
    with pytest.raises(ValueError, match="a spread needs"):
        Spread(sd, df)


def parts(found: Spread | None) -> tuple[float, float]:
    assert found is not None
    return found.sd, found.df


def test_of_repeats_alone_it_is_their_standard_deviation() -> None:
    assert parts(spread_of([1.0, 2.0, 4.0])) == (pytest.approx(math.sqrt(7 / 3)), 2)
    assert spread_of([1.0]) is None
    assert spread_of([1.0], Spread(0.02, 7)) == Spread(0.02, 7)
    with pytest.raises(ValueError, match="series"):
        spread_of([])


def test_what_is_known_and_the_repeats_add_up() -> None:
    """Squares 10 x 4 and 0.5, over 11 degrees of freedom."""
    assert parts(spread_of([0.0, 1.0], Spread(2.0, 10))) == (pytest.approx(math.sqrt((10 * 4 + 0.5) / 11)), 11)
    assert spread_of([0.0, 1.0], Spread(2.0, math.inf)) == Spread(2.0, math.inf)


@pytest.mark.parametrize(("factor", "df"), [(0.99, 11), (1.01, 1)])
def test_repeats_further_apart_than_known_count_alone(factor: float, df: float) -> None:
    """The median of F with 1 and 10 degrees of freedom is the limit."""
    apart = 2.0 * math.sqrt(stats.f.median(1, 10)) * math.sqrt(2) * factor
    sd = math.sqrt((10 * 4 + (df - 10) * apart**2 / 2) / 11) if df > 1 else apart / math.sqrt(2)
    assert parts(spread_of([0.0, apart], Spread(2.0, 10))) == (pytest.approx(sd), df)
    assert parts(spread_of([0.0, 1e-9], Spread(0.0, 10))) == (pytest.approx(1e-9 / math.sqrt(2)), 1)


def test_the_error_of_a_mean_is_at_least_that_of_the_steps() -> None:
    assert mean_error([0.0, 0.0], [0.03, 0.04]) == (pytest.approx(0.05 / 2), 1)
    assert mean_error([0.0, 0.1], [0.001, math.inf]) == (pytest.approx(0.05), 1)
    assert mean_error([5.0], [0.03]) == (math.inf, 1.0), "one trial of which no spread is known"
    assert mean_error([5.0], [0.03], Spread(0.02, 8)) == (0.03, 8), "not added: the spread holds the noise of steps"
    assert mean_error([5.0], [0.01], Spread(0.02, 8)) == (0.02, 8)


def test_what_is_known_holds_the_truth_in_95_of_100_single_trials() -> None:
    """Cells of a pool whose variances have the distribution that is known."""
    random, known, draws = np.random.default_rng(3), Spread(0.01, 6), 2000
    values = known.sd * np.sqrt(known.df / random.chisquare(known.df, draws)) * random.normal(size=draws)
    held = sum(abs(value) <= stats.t.ppf(0.975, df) * se for value in values for se, df in [mean_error([value], [0.0], known)])
    assert 0.935 < held / draws < 0.965


@pytest.mark.parametrize(("df", "factor"), [(1, 5.0273), (2, 2.6458), (4, 1.8771)])
def test_spreads_differ_from_the_limit_of_the_f_test_on(df: float, factor: float) -> None:
    """The root of F at 87.5 %, which is exceeded on either side with a chance of 1 in 4 together."""
    assert stats.f.sf(factor**2, df, df) == pytest.approx(0.125, abs=1e-4)
    for times, expected in ((0.999, False), (1.001, True)):
        one, other = Spread(0.01, df), Spread(0.01 * factor * times, df)
        assert spreads_differ(one, other) is expected and spreads_differ(other, one) is expected
    assert not spreads_differ(Spread(0.0, 2), Spread(0.0, 2))
    assert spreads_differ(Spread(0.0, 2), Spread(0.01, 2))


@pytest.mark.parametrize(("df", "pairs", "least"), [(4.0, 2, 39.25), (2.5, 2, 39.1), (8.0, 4, 8.98)])
def test_an_error_is_far_wider_by_an_f_test_at_2_5_percent(df: float, pairs: int, least: float) -> None:
    critical = float(stats.f.ppf(0.975, df, pairs))
    assert critical == pytest.approx(least, rel=0.01)
    assert far_wider(Spread(math.sqrt(critical) * 1.001, df), Spread(1.0, pairs))
    assert not far_wider(Spread(math.sqrt(critical) * 0.999, df), Spread(1.0, pairs))


def test_nothing_is_far_wider_than_no_spread_at_all() -> None:
    assert not far_wider(Spread(1.0, 4), Spread(0.0, 2)), "three equal counts do not show that they never differ"
    assert not far_wider(Spread(0.0, 4), Spread(0.0, 2))


@pytest.mark.parametrize(("df", "found"), [(1.0, False), (1.4, False), (1.6, True), (2.0, True)])
def test_two_rounds_show_no_far_smaller_error(df: float, found: bool) -> None:
    assert far_wider(Spread(1e6, 4), Spread(1.0, df)) is found
