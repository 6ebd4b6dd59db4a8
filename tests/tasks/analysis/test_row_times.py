"""What trials took, from rows as they lie on disk: without the pauses between runs of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.analysis.results import load_sweep
from tasks.analysis.row_times import row_times
from tasks.sweep import slot_log
from tasks.sweep.slot_log import SlotLog
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved


def test_rows_know_their_flow_and_pauses_between_flows_are_no_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [make_trial(n) for n in (1, 2, 3)]
    store = saved(make_plan([*trials, make_trial(4)]))
    first, second = (SlotLog(store.dir / "slots.jsonl") for _ in range(2))
    for trial, log, began in zip(trials, (first, second, second), (0.0, 500.0, 514.0), strict=True):
        monkeypatch.setattr(slot_log.time, "time", lambda began=began: began)
        log.taken(trial.key, "cpu", ["cpu-0"], began)
        store.save_result(make_result(trial, started_at=began, finished_at=began + 10.0))
    rows = load_sweep(Path(store.dir)).rows
    flows = [row.flow for row in rows]
    assert None not in flows[:3] and flows[1] == flows[2] != flows[0] and flows[3] is None
    assert row_times(rows).between_s == 4.0
    assert row_times(rows, {"other": 7.0}).seconds == {**{trial.cell: 10.0 for trial in trials}, "other": 7.0}
