from __future__ import annotations

import math

import pytest

from experiments.stats.between_sweeps import both_sides, unbounded, with_spread
from experiments.stats.estimate import Estimate, estimate_from_log, estimate_from_mean, t_value
from experiments.stats.spread import Spread


def test_errors_add_up_in_squares_with_satterthwaites_degrees_of_freedom() -> None:
    ratio = with_spread(estimate_from_log(math.log(1.1), 0.03, 10, 2, 0.95), [Spread(0.04, 5)])
    assert ratio.se == pytest.approx(0.05)
    assert ratio.df == pytest.approx(0.05**4 / (0.03**4 / 10 + 0.04**4 / 5))
    assert ratio.value == pytest.approx(1.1) and ratio.n == 2
    assert math.log(ratio.high / ratio.value) == pytest.approx(t_value(0.95, ratio.df) * 0.05)


def test_several_spreads_and_both_sides_of_one() -> None:
    ratio = estimate_from_log(0.0, 0.0, 10, 2, 0.95)
    two, twice = with_spread(ratio, [Spread(0.03, 6), Spread(0.04, 6)]), with_spread(ratio, [both_sides(Spread(0.03, 6))])
    assert two.se == pytest.approx(0.05) and two.df == pytest.approx(0.05**4 / (0.03**4 / 6 + 0.04**4 / 6))
    assert twice.se == pytest.approx(0.03 * math.sqrt(2)) and twice.df == pytest.approx(6), "one spread is not known twice"
    assert with_spread(ratio, []).df == 10


def test_differences_keep_their_scale() -> None:
    difference = with_spread(estimate_from_mean(0.5, 0.3, 8, 3, 0.95), [Spread(0.4, 8)])
    assert difference.linear and difference.se == pytest.approx(0.5) and difference.value == 0.5


def test_unbounded_stays_unbounded() -> None:
    ratio = unbounded(estimate_from_log(math.log(1.1), 0.03, 10, 2, 0.95))
    assert (ratio.value, ratio.low, ratio.high, ratio.se) == (pytest.approx(1.1), 0.0, math.inf, math.inf)
    assert with_spread(ratio, [Spread(0.01, 3)]) is ratio
    assert unbounded(Estimate(0.5, 0, 1, 0.1, 3, 2, linear=True)).low == -math.inf
