"""Section: the environment that all trials share."""

from __future__ import annotations

from tasks.report.section import Facts
from tests.tasks.cell_support import report_of, row, workers


def test_the_environment_that_all_share() -> None:
    facts = {"torch": "2.13", "driver": None, "flags": {"a": 1}, "tf32": True, "list": [1]}
    rows = [row(workers(0), environment={**facts, "host": "a"}), row(workers(1), environment={**facts, "host": "b"}), row(workers(2), None)]
    assert report_of(rows).section("environment").block(Facts).pairs == [("torch", "2.13"), ("driver", "unknown"), ("tf32", "true")]
    assert "environment" not in report_of([row(workers(0))]).section_names
