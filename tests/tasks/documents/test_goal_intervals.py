"""How a goal's row tells the interval of what was measured."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.metrics import metric_of
from experiments.stats.estimate import Estimate
from tasks.analysis.waterfall import Waterfall
from tasks.documents import goals


@pytest.mark.parametrize(
    ("name", "se", "told"),
    [("mfu", 0.01, "(45.0 % to 55.0 %)"), ("mfu", math.inf, ""), ("throughput", math.inf, "")],
)
def test_what_has_no_interval_is_told_without_one(name: str, se: float, told: str) -> None:
    """As of one trial, whose bounds are infinite."""
    low, high = (0.45, 0.55) if math.isfinite(se) else (0.0, math.inf)
    assert goals._interval_told(Estimate(0.5, low, high, se, 2, 2), metric_of(name)) == told


def test_of_traced_steps_that_were_much_slower_it_is_told_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not why, of which nothing is known here."""
    cell: Any = SimpleNamespace(mean=lambda name: 0.45)
    monkeypatch.setattr(goals, "waterfall_of", lambda cell: Waterfall(500e12, {"a": 0.3}, 0.3, 1.0))
    monkeypatch.setattr(goals, "slower", lambda cell, found: 1.5)
    assert goals.where_the_peak_went(cell) == (
        "30.0 % of 500.0 TFLOP/s in traced steps (MFU untraced 45.0 %); of the peak lost: 30.0 % to a; "
        "they took 1.50 times as long as measured ones, so these shares hold for traced steps"
    )
