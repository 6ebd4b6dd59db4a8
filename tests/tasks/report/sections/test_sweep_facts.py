"""What a report says of its sweep."""

from __future__ import annotations

from typing import Any

from experiments.trial import Outcome
from tasks.analysis.held_time import HeldTime, HeldTrial
from tasks.analysis.trial_row import TrialRow
from tasks.report.section import Facts
from tasks.report.sections.sweep_facts import sweep_facts
from tests.tasks.cell_support import report_of, row, source_of, workers

PLAN: dict[str, Any] = {
    "profile": "smoke",
    "created_at": 1_767_225_600.0,
    "git": {"commit": "0123456789abcdef", "dirty": True},
    "command": "sweep run x",
}


def facts(rows: list[TrialRow], **plan: Any) -> list[tuple[str, str]]:
    return list(report_of(rows, **plan).section("sweep_facts").block(Facts).pairs)


def test_what_is_known_of_the_sweep() -> None:
    rows = [row(workers(0)), row(workers(1), outcome=None, value=None)]
    assert facts(rows, **PLAN) == [
        ("Sweep", "made-up"),
        ("Planned", "2026-01-01 00:00 UTC"),
        ("Trials", "1 of 2 ended"),
        ("Commit", "0123456789ab with uncommitted changes"),
        ("Command", "sweep run x"),
    ]
    bare = facts(rows[:1], git={"commit": "0123456789abcdef", "dirty": False}, command="")
    assert bare[2:] == [("Trials", "1, all ended"), ("Commit", "0123456789ab")]
    assert [name for name, _ in facts(rows[:1], command="")] == ["Sweep", "Planned", "Trials"]
    assert ("Trials", "2 of 3 ended") in facts([*rows, row(workers(2), None, outcome=Outcome.CRASHED)])


def test_several_runs_of_a_sweep_are_told() -> None:
    sweep = source_of([row(workers(0))]).sweep
    once = HeldTrial("a", "cpu", {"measured": 1.0})
    assert ("Runs", "2") in sweep_facts(sweep, HeldTime([once, once]))
    assert "Runs" not in dict(sweep_facts(sweep, HeldTime([once])))
