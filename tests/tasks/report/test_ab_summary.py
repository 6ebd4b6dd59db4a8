"""The comment of an A/B sweep: what stands in its table."""

from __future__ import annotations

from typing import Any

from tasks.analysis.ab import ab_pairs
from tasks.analysis.trial_row import TrialRow
from tasks.report.ab_summary import _ratio
from tasks.sweep.ab_settings import AbSettings
from tests.tasks.cell_support import disturbed, made, row, settings

SIDES = AbSettings(kind="commits", a="main", b="HEAD")


def side(label: str, values: list[float]) -> list[TrialRow]:
    axes: dict[str, Any] = {"pool": "cpu", "side": label}
    return [row(axes, value, repeat=number) for number, value in enumerate(values, 1)]


def test_a_ratio_says_of_which_rounds_it_is_where_it_is_not_that_of_the_values_beside_it() -> None:
    first, second = SIDES.labels
    suite = settings(rows=["pool"], columns="side", baseline={"side": first})
    a, b = side(first, [20_000.0, 24_000.0, 32_560.0]), side(second, [15_000.0, 17_500.0, 20_838.0])
    [whole] = ab_pairs(made([*a, *b], suite), SIDES)
    assert _ratio(whole).startswith("x0.70 (") and "round" not in _ratio(whole)
    [apart] = ab_pairs(made([*map(disturbed, a[:2]), a[2], *map(disturbed, b)], suite), SIDES)
    assert _ratio(apart) == "x0.64 (interval unknown), of round 3 alone"
