"""Section: every trial that did not end ok."""

from __future__ import annotations

from experiments.trial import Outcome
from tests.tasks.cell_support import report_of, row, workers


def test_trials_that_are_not_ok_are_listed_with_their_reason() -> None:
    rows = [
        row(workers(0)),
        row(workers(2), None, outcome=Outcome.DOES_NOT_FIT, reason="80 GiB"),
        row(workers(3), None, outcome=None),
        row(workers(4), None, outcome=Outcome.CRASHED),
    ]
    assert report_of(rows).section("outcomes").table.rows == [
        ["cpu · MP-2 · #1", "does not fit", "80 GiB"],
        ["cpu · MP-3 · #1", "to do", "has not run"],
        ["cpu · MP-4 · #1", "crashed", "no reason given"],
    ]
    assert report_of([*rows, row(workers(2), None, repeat=2, outcome=Outcome.DOES_NOT_FIT)]).section("outcomes").text == (
        "Every trial that did not end ok: 4 trials of 3 cells."
    )
    assert "outcomes" not in report_of(rows[:1]).section_names
