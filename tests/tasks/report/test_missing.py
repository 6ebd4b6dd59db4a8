"""Cells without a value, in sentences."""

from __future__ import annotations

from experiments.trial import Outcome
from tasks.report.missing import find_missing
from tests.tasks.cell_support import made, row, workers


def test_cells_without_a_value_are_said_by_outcome() -> None:
    rows = [
        row(workers(0)),
        row(workers(1), None, outcome=Outcome.DOES_NOT_FIT, reason="80 GiB"),
        row(workers(2), None, outcome=None),
        row(workers(3), None, outcome=Outcome.DOES_NOT_FIT, reason="80 GiB"),
        row(workers(4), None),
        row(workers(5), None, outcome=Outcome.CRASHED, reason="a"),
        row(workers(6), None, outcome=Outcome.CRASHED, reason="b"),
    ]
    assert [(found.outcome, found.sentence) for found in find_missing(made(rows))] == [
        ("does_not_fit", "2 cells do not fit in device memory (MP-1 and MP-3): 80 GiB"),
        ("to do", "1 cell has not run yet (MP-2)"),
        ("ok", "1 cell ended without the metric (MP-4)"),
        ("crashed", "2 cells crashed (MP-5 and MP-6): 2 different reasons, see outcomes"),
    ]
    assert find_missing(made(rows[:1])) == []
    [one] = find_missing(made([row(workers(1), None, outcome=Outcome.DOES_NOT_FIT, reason="80 GiB")]))
    assert one.sentence == "1 cell does not fit in device memory (cpu · MP-1): 80 GiB"
