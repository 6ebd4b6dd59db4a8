"""A sweep over the emulated Gaudi and a CPU, through the command line: the pool's own Python, journal, MLflow, Parquet, report."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cluster.journal.journal import read_journal
from experiments.trial import Outcome
from tasks.analysis.results import load_sweep
from tests.cli_support import ROOT, only_store, sweep
from tests.mlflow_support import all_runs, check_projection

pytestmark = [pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _environment_is_made() -> None:
    assert (ROOT / ".venv-gaudi" / ".installed").exists(), "`make test-gaudi` makes it"


def test_emulated_trials_run_on_their_own_python_and_stay_apart_from_measured_ones(tmp_path: Path) -> None:
    status, text = sweep("run", "on_gaudi", folder=tmp_path)
    store = only_store()
    assert store is not None, text
    plan = store.load_plan()
    found = {(t.pool, str(t.parameters["precision"]), str(t.parameters["fault"])): (t, store.result(t.key)) for t in plan.trials}
    outcomes = {name: result.outcome for name, (_, result) in found.items() if result is not None}
    assert outcomes == {
        ("cpu", "fp32", "none"): Outcome.OK,
        ("gaudi2-emulated", "fp32", "none"): Outcome.OK,
        ("gaudi2-emulated", "fp16", "none"): Outcome.UNSUPPORTED,
        ("gaudi2-emulated", "fp32", "hang"): Outcome.HANG,
    }, text
    assert status == 2, "the hang is a failure"

    # journal, result, Parquet and MLflow all say which ones were emulated, as the device said it
    for (pool, *_), (trial, result) in found.items():
        emulated = pool != "cpu"
        assert result is not None and result.emulated is emulated
        environment = read_journal(store.trial_dir(trial.key) / "journal.jsonl").environment
        assert environment["emulated"] is emulated and environment["device_kind"] == ("hpu" if emulated else "cpu")
    table = pq.read_table(store.dir / "results.parquet").to_pylist()
    assert {(row["pool"], row["emulated"], row["env.emulated"]) for row in table} == {
        ("cpu", False, False),
        ("gaudi2-emulated", True, True),
    }
    check_projection(store)
    assert {(run.data.params["pool"], run.data.tags["emulated"]) for run in all_runs(store.sweep_id)} == {
        ("cpu", "false"),
        ("gaudi2-emulated", "true"),
    }
    (parent,) = all_runs(store.sweep_id, "parent")
    measured = found["cpu", "fp32", "none"][1]
    assert measured is not None and parent.data.metrics["best_throughput"] == measured.summary["throughput"]

    # the report measures on the CPU alone; the emulated one is a page of its own, marked
    report = (store.dir / "report.md").read_text()
    emulated_rate = next(row.summary["throughput"] for row in load_sweep(store.dir).rows if row.emulated and row.outcome == "ok")
    assert "EMULATED" not in report and "3 trials ran on an emulated device" in report
    assert "gaudi2-emulated" not in report.split("## Comparison")[1].split("## Trials")[0]
    assert emulated_rate is not None
    status, text = sweep("report", store.sweep_id, "--emulated", folder=tmp_path)
    assert status == 0 and "EMULATED: NOT A MEASUREMENT" in text
    page = (store.dir / "report-emulated.md").read_text()
    assert "EMULATED: NOT A MEASUREMENT" in page
    assert "cpu" not in page.split("## Comparison")[1].split("## Outcomes")[0]
    assert (store.dir / "report.md").read_text() == report

    # what the sweep's own record says
    trial = json.loads((store.trial_dir(found["cpu", "fp32", "none"][0].key) / "trial.json").read_text())
    assert trial["emulated"] is False
