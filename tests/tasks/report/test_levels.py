"""The confidence that is told of ratios' intervals, from cells with made-up levels."""

from __future__ import annotations

import pytest

from experiments.stats.interim_looks import Look
from experiments.stats.verdict import Levels
from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.report.comparison_table import table_of_plan
from tasks.report.levels import level_text
from tasks.sweep.store import DecideSettings, Plan
from tests.tasks.cell_support import made, make_plan, repeats, row, settings, workers
from tests.tasks.fake_sweep import as_suite
from tests.tasks.race_support import race_plan

LOOKS = [Look(round=3, spent=0.5), Look(round=4, spent=0.75)]


def cells_at(*confidences: float) -> list[Cell]:
    """A baseline and cells whose comparisons have these confidences."""
    cells = made([one for count in range(len(confidences) + 1) for one in repeats(workers(count), 100.0 + count)])
    for cell, confidence in zip(cells[1:], confidences, strict=True):
        cell.levels = Levels(0.001, confidence)
    return cells


def plan_of(cells: list[Cell], looks: list[Look] | None) -> Plan:
    decide = None if looks is None else DecideSettings(budget_s=60.0, looks=looks)
    return make_plan([row.trial for cell in cells for row in cell.rows], suite=as_suite(settings()), decide=decide)


LESS = "It leaves out what rounds and a drift did to both, so it may differ from what their values give."
AGAIN = ", because the sweep may be looked at again after more rounds"
TWICE = ", because the sweep was looked at 2 times"


@pytest.mark.parametrize(
    ("confidences", "looks", "said"),
    [
        ((0.95,), None, "95 %"),
        ((0.95,), [], "95 %"),
        ((), LOOKS, "95 %"),
        ((0.9625, 0.9625), LOOKS[:1], f"96.25 %{AGAIN}"),
        ((0.9625,), LOOKS, f"96.25 %{TWICE}"),
        ((0.979251984608007, 0.9625000000000005, 0.97), LOOKS, f"96.25 to 97.93 %{TWICE}"),
        ((0.9739999, 0.9740001), LOOKS, f"97.4 %{TWICE}"),
    ],
)
def test_the_level_is_that_of_the_looks(confidences: tuple[float, ...], looks: list[Look] | None, said: str) -> None:
    cells = cells_at(*confidences)
    plan = plan_of(cells, looks)
    assert level_text(cells, plan) == said
    table = table_of_plan(cells, plan)
    ratio = f"; x is the speed-up over the baseline, with its interval in brackets: {said}. {LESS}" if confidences else "."
    assert table.about == f"Throughput, samples/s. ± is half the 95 % interval{ratio}", "nothing of ratios where there are none"


def test_a_table_without_intervals_explains_none() -> None:
    cells = made([row({"pool": "a"}, None, outcome=Outcome.CRASHED), row({"pool": "b"}, 100.0)])
    table = table_of_plan(cells, plan_of(cells, None))
    assert (table.about, table.reading) == ("Throughput, samples/s.", "")
    apart = made([row(workers(0), 100.0), row(workers(1), 150.0)])
    ratio = "x is the speed-up over the baseline."
    assert table_of_plan(apart, plan_of(apart, None)).reading == ratio


def test_a_race_says_that_its_intervals_are_plain() -> None:
    assert level_text(cells_at(0.95), race_plan([])).startswith("95 %, as if the sweep had been looked at once: ")
