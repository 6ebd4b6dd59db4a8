"""What a report says under it of its intervals and verdicts: what the code does, with the suite's own smallest effect."""

from __future__ import annotations

import pytest

from experiments.metrics import metric_of
from tasks.report.html import render_html
from tasks.report.method import method_of
from tasks.report.model import report_of
from tests.tasks.cell_support import repeats, settings, source_of


@pytest.mark.parametrize(
    ("metric", "minimum", "off", "within"),
    [
        ("throughput", None, "the ratio is off 1 by at least 2.0 %", "within 2.0 % of 1"),
        ("throughput", 0.05, "the ratio is off 1 by at least 5.0 %", "within 5.0 % of 1"),
        ("loss_spikes", None, "the difference is at least 1", "within 1 of 0"),
        ("mfu", 0.05, "the ratio is off 1 by at least 5.0 %", "within 5.0 % of 1"),
        ("data_wait_share", None, "the difference is at least 2.00 points", "within 2.00 points of 0"),
    ],
)
def test_the_levels_and_the_smallest_effect_are_those_that_the_verdicts_use(
    metric: str, minimum: float | None, off: str, within: str
) -> None:
    said = method_of(metric_of(metric), minimum)
    assert f"where {off}, its p-value is below 0.5 % and the false discovery rate over the table's comparisons is below 2.5 %" in said
    assert f"the same where the whole interval lies {within}, and undecided else" in said


def test_a_report_without_cells_says_nothing_of_verdicts() -> None:
    assert method_of(None, None).endswith("that of a ratio has what its table says.")


def test_it_stands_on_the_page() -> None:
    rows = [*repeats({"pool": "cpu", "dataloader_workers": 0}, 100.0), *repeats({"pool": "cpu", "dataloader_workers": 1}, 150.0)]
    report = report_of(source_of(rows, settings()))
    assert f"<footer>\n{report.method.replace(chr(39), '&#39;')}\n</footer>" in render_html(report)
