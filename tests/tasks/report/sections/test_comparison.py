"""The section of the comparison: its table, and what its repeats vary in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tasks.analysis.trial_row import TrialRow
from tasks.report.markdown import render_markdown
from tasks.report.sections.comparison import SEEDS
from tests.tasks.cell_support import repeats, report_of, row, settings, workers


def said(rows: Sequence[TrialRow], metric: str) -> list[str]:
    blocks = report_of(rows, settings(metric=metric)).section("comparison").blocks
    return [line for block in blocks if block.kind == "bullets" for line in block.lines]


@pytest.mark.parametrize(("metric", "lines"), [("eval_loss_after", [SEEDS]), ("throughput", []), ("peak_memory_bytes", [])])
def test_that_repeats_have_seeds_is_said_where_the_table_is_of_what_is_learnt(metric: str, lines: list[str]) -> None:
    summary = {"eval_loss_after": 2.0, "peak_memory_bytes": 7e9}
    assert said(repeats(workers(0), 100.0, (0.0, 0.01), summary=summary), metric) == lines
    assert said([row(workers(0), summary=summary)], metric) == [], "of one trial nothing varies"


@pytest.mark.parametrize(("metric", "told"), [("throughput", True), ("eval_loss_after", False), ("peak_memory_bytes", False)])
def test_step_times_that_did_not_settle_matter_to_what_depends_on_them(metric: str, told: bool) -> None:
    summary = {"eval_loss_after": 2.0, "peak_memory_bytes": 7e9, "settled": False, "drift": 0.1}
    rows = [replace(one, summary={**one.summary, **summary}) for one in repeats(workers(0), 100.0, (0.0, 0.01))]
    report = report_of(rows, settings(metric=metric))
    assert any("never settled" in line for line in report.cautions) is told
    places = [
        place for block in report.section("comparison").blocks if block.kind == "comparison" for _, line in block.rows for place in line
    ]
    assert ["did not settle" in place.notes for place in places] == [told]


def test_where_nothing_measured_there_is_no_table() -> None:
    rows = [row({"pool": "gaudi2-emulated", "dataloader_workers": count}, 100.0, emulated=True) for count in (0, 1)]
    report = report_of(rows, settings())
    assert "comparison" not in report.section_names and "|  |" not in render_markdown(report)
    assert "comparison" in report_of(rows, settings(), emulated=True).section_names
