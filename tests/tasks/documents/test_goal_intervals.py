"""How a goal's row tells the interval of what was measured, and the clocks of both sides of a ratio."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.metrics import metric_of
from experiments.stats.estimate import Estimate
from tasks.analysis.waterfall import Waterfall
from tasks.documents import goals
from tasks.documents.goals import BEYOND, OPEN, Goal, Near
from tasks.report.published_pages import Page
from tests.tasks.cell_support import T2, made, repeats, row, settings, workers


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


@pytest.mark.parametrize(
    ("metric", "values", "own", "value", "bounds", "far"),
    [
        # Its own: the arithmetic mean, and a t interval of the differences
        ("eval_accuracy_after", (0.4, 0.5, 0.6), True, 0.5, (0.5 - T2 * 0.1 / math.sqrt(3), 0.5 + T2 * 0.1 / math.sqrt(3)), OPEN),
        # Of another metric only ratios are known to have one
        ("eval_accuracy_after", (0.4, 0.5, 0.6), False, 0.5, None, f"{BEYOND}, by the mean"),
        ("mfu", (0.4, 0.5, 0.625), False, 0.5, (0.5 * 1.25 ** (-T2 / math.sqrt(3)), 0.5 * 1.25 ** (T2 / math.sqrt(3))), OPEN),
        ("mfu", (0.4, 0.5, 0.625), True, 0.5, (0.5 * 1.25 ** (-T2 / math.sqrt(3)), 0.5 * 1.25 ** (T2 / math.sqrt(3))), OPEN),
    ],
)
def test_a_value_on_the_linear_scale_has_an_interval_where_it_is_the_cells_own(
    metric: str, values: tuple[float, ...], own: bool, value: float, bounds: tuple[float, float] | None, far: str
) -> None:
    goal = Goal.model_validate({"what": "x", "suite": "s", "where": {}, "source": "y", "metric": metric, "goal": 0.45})
    rows = [
        row(workers(0), one if own else 100.0, metric=metric if own else "throughput", repeat=place, summary={metric: one})
        for place, one in enumerate(values, 1)
    ]
    [cell] = made(rows, settings(metric=metric if own else "throughput"))
    nothing: Any = None
    found = goals._value(goal, cell)
    near = Near(nothing, nothing, cell, found or 0.0)
    assert found == pytest.approx(value) and goals.how_far(goal, near).partition("; ")[0] == far
    interval = goals._interval_of(goal, near)
    if bounds is None:
        assert interval is None
    else:
        assert interval is not None and (interval.value, interval.low, interval.high) == pytest.approx((value, *bounds), rel=1e-5)


@pytest.mark.parametrize(
    ("clock", "other", "told"),
    [
        (1874.0, 1735.0, ", clocks 1,874 and 1,735 MHz (x1.08)"),
        (1753.0, 1735.0, ", clocks 1,753 and 1,735 MHz (x1.01)"),
        (1752.0, 1735.0, ""),
        (1717.0, 1735.0, ", clocks 1,717 and 1,735 MHz (x0.99)"),
        (1718.0, 1735.0, ""),
        (None, 1735.0, ""),
        (1735.0, None, ""),
    ],
)
def test_a_ratio_has_the_clocks_of_both_sides_where_they_differ_by_a_percent(clock: float | None, other: float | None, told: str) -> None:
    """A cell that draws less runs at a higher clock at the same power limit: so much is not the kernels'."""
    base, fast = made([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0)])
    for cell, mhz in ((base, other), (fast, clock)):
        for one in cell.rows:
            one.summary["clock_mean_mhz"] = mhz
    goal = goals.Goal.model_validate(
        {"what": "", "suite": "made_up", "source": "", "times": 1.0}
        | {"where": {"dataloader_workers": 1}, "over": {"dataloader_workers": 0}}
    )
    sweep: Any = SimpleNamespace(plan=SimpleNamespace(suite=SimpleNamespace(suite="made_up")))
    [near] = goals._found(goal, [(Page(Path("page"), "page"), sweep, [base, fast])])
    value = goals._measured(goal, near).split("; ")[0]
    assert value.endswith(f" over MP-0{told}") and value.startswith("x1.500 (1.")
