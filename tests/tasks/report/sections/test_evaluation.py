"""Section: metrics on held-out data before and after training."""

from __future__ import annotations

from experiments.trial import Outcome
from tests.tasks.cell_support import disturbed, report_of, row, workers


def test_evaluations_before_and_after() -> None:
    rows = [
        row(workers(0), repeat=1, summary={"eval_loss_before": 5.0, "eval_loss_after": 2.0, "eval_recall_at_1_after": 0.25}),
        row(workers(0), repeat=2, summary={"eval_loss_before": 7.0, "eval_loss_after": 3.0, "eval_recall_at_1_after": None}),
        row(workers(1), summary={"eval_odd_before": None}),
        row(workers(2), None, outcome=Outcome.CRASHED, summary={"eval_loss_before": 9.0}),
    ]
    table = report_of(rows).section("evaluation").table
    assert table.header == ["cell", "loss, before", "loss, after", "recall at 1, after"]
    assert table.rows == [["MP-0", "5.92", "2.45", "0.250"], ["MP-1", "–", "–", "–"]]
    busy = disturbed(row(workers(0), repeat=3, summary={"eval_loss_after": 36.0}))
    of_seeds = report_of([*rows[:2], busy]).section("evaluation").table
    assert of_seeds.rows[0][2] == "6.00", "other work changes no loss"
    zero = report_of([row(workers(0), summary={"eval_loss_after": 0.0, "eval_loss_before": 1.0})]).section("evaluation").table
    assert zero.header == ["cell", "loss, before"], "0 has no logarithm"
    assert "evaluation" not in report_of(rows[2:3]).section_names
