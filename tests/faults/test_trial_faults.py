"""Every way a trial can end, in one sweep through the command line (rows 1, 3, 17, 24)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cluster.journal.journal import read_journal
from cluster.launchers import processes
from experiments.trial import Outcome
from tests.cli_support import only_store, sweep, sweep_json
from tests.mlflow_support import all_runs, check_projection

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900), pytest.mark.usefixtures("mlflow_database")]


def test_one_bad_trial_never_stops_the_others_and_each_ends_as_what_it_was(tmp_path: Path, prefect_server: str) -> None:
    marker = tmp_path / "marker"
    marker.mkdir()
    status, text = sweep("run", "faults", "--set", f"marker_dir={marker}", folder=tmp_path, PREFECT_API_URL=prefect_server)
    store = only_store()
    assert store is not None, text
    fired = (marker / "fault-fired").read_text()
    for fault in ("kill", "device_oom", "nan", "inf", "raise", "unsupported"):
        assert f"{fault} at step 3" in fired  # the fault was there
    assert status == 2, text

    plan = store.load_plan()
    found = {str(trial.parameters["fault"]): store.result(trial.key) for trial in plan.trials}
    outcomes = {fault: result.outcome for fault, result in found.items() if result is not None}
    assert outcomes == {
        "kill": Outcome.OK,  # row 1: tried again
        "none": Outcome.OK,
        "device_oom": Outcome.DOES_NOT_FIT,  # row 3
        "nan": Outcome.DIVERGED,  # row 17
        "inf": Outcome.DIVERGED,
        "raise": Outcome.CRASHED,  # row 24
        "unsupported": Outcome.UNSUPPORTED,
    }
    attempts = {fault: result.attempt for fault, result in found.items() if result is not None}
    assert attempts == {**dict.fromkeys(attempts, 1), "kill": 2}  # only the infrastructure's failure was tried again
    assert fired.count("device_oom") == fired.count("raise") == 1
    for fault, result in found.items():
        assert result is not None
        assert bool(result.reason) == (result.outcome is not Outcome.OK), fault
        assert (result.summary.get("throughput") is None) == (result.outcome is not Outcome.OK), fault  # never counted as a good result

    # row 1: from the start, each step once
    killed = next(trial for trial in plan.trials if trial.parameters["fault"] == "kill")
    journal = read_journal(store.trial_dir(killed.key) / "journal.jsonl")
    assert journal.attempt == 2 and [step["step"] for step in journal.steps] == list(range(1, 11))

    check_projection(store)
    runs = {(run.data.params["fault"], run.data.tags["trial.attempt"]): run for run in all_runs(store.sweep_id)}
    assert runs["kill", "1"].info.status == "FAILED" and runs["kill", "1"].data.tags["reason"]
    for fault in ("nan", "inf"):
        assert "throughput" not in runs[fault, "1"].data.metrics
        assert all(value < 1e300 for value in runs[fault, "1"].data.metrics.values())

    # the user sees it, in words
    for word in ("does_not_fit", "diverged", "crashed", "unsupported"):
        assert word in text
    shown = sweep_json("show", store.sweep_id, folder=tmp_path)
    assert shown["status"]["status"] == 2
    assert all(processes.of_trial(trial.key) == [] for trial in plan.trials)

    # what it said about itself is final: a resume runs nothing
    status, text = sweep("resume", "last", folder=tmp_path, PREFECT_API_URL=prefect_server)
    assert status == 2
    assert "7 of 7 trials are done" in text
    check_projection(store)

    # unless it is asked for: here nothing was mended, so it crashes again
    status, text = sweep("resume", "last", "--crashed", folder=tmp_path, PREFECT_API_URL=prefect_server)
    assert status == 2, text
    again = (marker / "fault-fired").read_text()
    assert (again.count("raise at step 3"), again.count("nan at step 3")) == (2, 1), "of what crashed alone"
    raised = next(trial for trial in plan.trials if trial.parameters["fault"] == "raise")
    result = store.result(raised.key)
    assert result is not None and (result.outcome, result.attempt) == (Outcome.CRASHED, 2)
    assert (store.trial_dir(raised.key) / "crashed-a1" / "result.json").exists()
    assert "1 trial had crashed and ran again, as `sweep resume --crashed` asked: " in (store.dir / "report.md").read_text()
    runs = {run.data.tags["trial.attempt"]: run.info.status for run in all_runs(store.sweep_id) if run.data.params.get("fault") == "raise"}
    assert runs == {"1": "FAILED", "2": "FAILED"}, "neither is lost"
    check_projection(store)


_ALL_RAISE = """
suite: all_raise
description: Five cells that fail alike.
workload: faulty
retries_disturbed: 0
fixed: {steps: 5, warmup_steps: 2, evaluate: false, width: 8, threads: 1, fault: raise}
axes:
  pool: [cpu]
  seed: [0, 1, 2, 3, 4]
report: {rows: [pool], columns: seed}
"""


def test_a_sweep_whose_first_trials_all_end_by_the_same_error_stops_and_says_so(tmp_path: Path, prefect_server: str) -> None:
    (tmp_path / "all_raise.yaml").write_text(_ALL_RAISE)
    status, text = sweep("run", "all_raise.yaml", folder=tmp_path, PREFECT_API_URL=prefect_server)
    store = only_store()
    assert store is not None, text
    results = [store.result(trial.key) for trial in store.load_plan().trials]
    outcomes = [result.outcome if result else None for result in results]
    assert outcomes[:3] == [Outcome.CRASHED] * 3, "the fault fired"
    assert all(outcome in (None, Outcome.CANCELLED) for outcome in outcomes[3:]), outcomes
    reason = r"faulty\.py:\d+ in _fail: RuntimeError: deliberate failure at step 3"
    said = rf"stopped: the first 3 trials, of 3 cells, all ended as crashed \({reason}\); mend that and resume the sweep"
    assert status == 1 and re.search(said, text), text
    assert re.search(rf"No cell has a value: 3 crashed \({reason}\), 2 (to do|cancelled)\.", text), text
    assert f"go on with it: sweep resume {store.sweep_id}" in text and "Traceback" not in text
