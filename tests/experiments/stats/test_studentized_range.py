"""The studentized range beside scipy's, which integrates adaptively."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.stats.studentized_range import range_sf


@pytest.mark.parametrize(
    ("q", "k", "df"), [(4.0, 3, 1.0), (2.5, 10, 3.7), (7.0, 50, 8.0), (15.0, 200, 2.5), (4.5, 1000, 9e4), (9.0, 3000, 12.0)]
)
def test_it_is_that_of_scipy(q: float, k: int, df: float) -> None:
    assert range_sf(q, k, df) == pytest.approx(float(stats.studentized_range.sf(q, k, df)), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("df", [1.0, 2.0, 7.5, 300.0, 1e5, math.inf])
def test_of_two_values_it_is_students_t(df: float) -> None:
    """The range of two is their difference: q = t * sqrt(2)."""
    for t in (0.5, 2.0, 4.0):
        assert range_sf(t * math.sqrt(2), 2, df) == pytest.approx(2 * float(stats.t.sf(t, min(df, 1e12))), rel=1e-3 if df == 1e5 else 1e-8)


def test_tables_of_the_range() -> None:
    """Upper 5 % points: Pearson & Hartley, Biometrika Tables for Statisticians I, table 29."""
    for q, k, df in ((3.64, 2, 5), (5.67, 5, 5), (4.65, 5, 10), (3.86, 5, math.inf), (5.01, 20, math.inf)):
        assert range_sf(q, k, df) == pytest.approx(0.05, abs=6e-4)


def test_it_falls_from_one_to_nothing() -> None:
    values = [range_sf(q, 1000, 5.0) for q in np.linspace(0.01, 60, 40)]
    assert values[0] == 1.0 and values[-1] < 1e-4 and values == sorted(values, reverse=True)
