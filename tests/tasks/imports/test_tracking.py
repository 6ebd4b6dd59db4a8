"""Imports in MLflow: an experiment of their own, marked, with every figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.imports import tracking
from tasks.imports.store import import_files
from tasks.sweep.store import SweepStore
from tests.tasks.fake_mlflow import Client
from tests.tasks.imports.others import BEGAN, mlperf, written


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    made = Client()
    monkeypatch.setattr(tracking, "connect", lambda: made)
    return made


def test_runs_are_marked_and_lie_apart_from_those_of_suites(client: Client, tmp_path: Path) -> None:
    paths = [written(tmp_path, f"{n}.txt", mlperf(minutes=n)) for n in (5, 6)]
    imported = import_files(paths)
    where = tracking.publish_imported(imported, SweepStore(imported.sweep_id).dir)
    assert list(client.experiments) == ["imported-mlperf"]
    assert where == f"experiment imported-mlperf, run {imported.sweep_id}; `sweep ui` serves it"
    parent, *results = client.runs.values()
    assert {run.data.tags["measured_by"] for run in client.runs.values()} == {"others"}
    assert not any(name.startswith(("sweep.", "trial.", "night.")) for run in client.runs.values() for name in run.data.tags)
    assert (parent.info.run_name, parent.data.tags["origin"]) == (imported.sweep_id, "mlperf")
    assert "Measured by others" in parent.data.tags["mlflow.note.content"]
    assert [run.info.run_name for run in results] == ["llama2_70b_lora #1", "llama2_70b_lora #2"]
    assert [run.data.tags["mlflow.parentRunId"] for run in results] == ["run0", "run0"]
    assert {run.info.status for run in client.runs.values()} == {"FINISHED"}
    assert client.artifacts == {"run0": ["imported.json", "originals/"]}
    assert client.params["run1"] == {"global_batch_size": "8", "opt_name": "adamw"}
    assert client.params["run0"] == {"submission_org": "Somebody"}
    metrics, at = client.metrics["run1"], BEGAN + 10
    assert ("time_to_train.s", 300.0, at, 0) in metrics and ("throughput_median", 120.0, at, 0) in metrics
    assert [(value, step) for name, value, _, step in metrics if name == "throughput_median.each"] == [(100.0, 0), (140.0, 1), (120.0, 2)]


def test_a_setting_that_is_longer_than_mlflow_takes_is_cut_there_and_kept_in_the_import(client: Client, tmp_path: Path) -> None:
    imported = import_files([written(tmp_path, "long.txt", mlperf().replace("adamw", "x" * 7000))])
    tracking.publish_imported(imported, SweepStore(imported.sweep_id).dir)
    assert client.params["run1"]["opt_name"] == "x" * 6000 and imported.results[0].settings["opt_name"] == "x" * 7000


def test_names_that_mlflow_refuses_are_changed() -> None:
    assert tracking._name("latency, p99 (%)") == "latency_ p99 ___" and len(tracking._name("x" * 300)) == 250
