"""How a goal's row tells the interval of what was measured."""

from __future__ import annotations

import math

import pytest

from experiments.metrics import metric_of
from experiments.stats.estimate import Estimate
from tasks.documents import goals


@pytest.mark.parametrize(
    ("name", "se", "told"),
    [("mfu", 0.01, "(45.0 % to 55.0 %)"), ("mfu", math.inf, ""), ("throughput", math.inf, "")],
)
def test_what_has_no_interval_is_told_without_one(name: str, se: float, told: str) -> None:
    """As of one trial, whose bounds are infinite."""
    low, high = (0.45, 0.55) if math.isfinite(se) else (0.0, math.inf)
    assert goals._interval_told(Estimate(0.5, low, high, se, 2, 2), metric_of(name)) == told
