"""An A/A sweep for real: two pairs, one trial after the other, in MLflow and in the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.trial import Outcome
from tests.cli_support import only_store, sweep
from tests.mlflow_support import all_runs, check_projection

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("mlflow_database")]


def test_twins_run_in_turns_and_are_reported(tmp_path: Path, prefect_server: str) -> None:
    words = ["aa", "synthetic", "--profile", "smoke", "--set", "steps=20", "--set", "warmup_steps=2", "--pairs", "2"]
    status, text = sweep(*words, folder=tmp_path, PREFECT_API_URL=prefect_server)
    assert status == 0, text
    store = only_store()
    assert store is not None
    plan = store.load_plan()
    results = [store.result(trial.key) for trial in plan.trials]
    assert [result.outcome for result in results if result] == [Outcome.OK] * 4
    assert [trial.name.split(" · ", 3)[3] for trial in plan.trials] == ["A · #1", "B · #1", "B · #2", "A · #2"]
    times = [time for result in results if result for time in (result.started_at, result.finished_at)]
    assert times == sorted(times), "one after the other, in the plan's order"
    check_projection(store)
    assert sorted(run.data.tags["aa.twin"] for run in all_runs(store.sweep_id)) == ["A", "A", "B", "B"]
    # whether its pairs count depends on what else the machine does
    assert "## A/A" in (store.dir / "report.md").read_text()
    assert "A/A pair" in text
