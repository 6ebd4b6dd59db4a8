"""Section: metrics on held-out data before and after training."""

from __future__ import annotations

from experiments.trial import Outcome
from tests.tasks.cell_support import report_of, row, workers


def test_evaluations_before_and_after() -> None:
    rows = [
        row(workers(0), repeat=1, summary={"eval_loss_before": 5.0, "eval_loss_after": 2.0, "eval_recall_at_1_after": 0.25}),
        row(workers(0), repeat=2, summary={"eval_loss_before": 7.0, "eval_loss_after": 3.0, "eval_recall_at_1_after": None}),
        row(workers(1), summary={"eval_odd_before": None}),
        row(workers(2), None, outcome=Outcome.CRASHED, summary={"eval_loss_before": 9.0}),
    ]
    table = report_of(rows).section("evaluation").table
    assert table.header == ["cell", "loss, before", "loss, after", "recall at 1, after"]
    assert table.rows == [["MP-0", "6.00", "2.50", "0.250"], ["MP-1", "–", "–", "–"]]
    assert "evaluation" not in report_of(rows[2:3]).section_names
