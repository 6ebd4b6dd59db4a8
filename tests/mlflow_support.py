"""A sweep on disk with journals, and what a test asks of its projection in MLflow."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cluster.journal.journal import JournalWriter, read_journal
from experiments.atomic_file import atomic_write
from experiments.trial import Outcome, TrialResult
from tasks.sweep.store import Plan, SweepStore
from tasks.tracking.client import connect
from tests.contracts import make_trial
from tests.tasks.plan_support import make_plan

COMMUNICATION = {"with_s": 0.07, "without_s": 0.065, "step_s": 0.1, "alone_s": 0.008}
METRICS = ("loss", "step_time_s", "data_wait_s", "samples_per_s")


def write_journal(
    folder: Path, attempt: int, steps: int, begin: float = 1_700_000_000.0, step_s: float = 0.1, **environment: object
) -> None:
    """A journal as a worker writes it, with figures that no worker measured. `environment`: facts beside those that it has anyway."""
    with JournalWriter(folder / "journal.jsonl", attempt) as journal:
        journal.append("environment", device_name="none", host="none", **environment)
        for step in range(1, steps + 1):
            journal.append(
                "step",
                t=begin + step * 0.1,
                step=step,
                measured=step > 2,
                loss=2.0 / step,
                samples=16,
                data_wait_s=0.1 * step_s,
                h2d_s=0.0,
                forward_backward_s=0.7 * step_s,
                optimizer_s=0.2 * step_s,
                total_s=step_s,
            )
        window_s = (steps - 2) * step_s
        journal.append("window", wall_s=window_s, samples=(steps - 2) * 16, ranks=[], peak_memory_bytes=None, communication=COMMUNICATION)


def make_store(root: Path, outcomes: dict[str, Outcome], steps: int = 30) -> tuple[SweepStore, Plan]:
    """A planned sweep of one trial for each name, ended as told."""
    sweep_id = "projected-20260101-000000-0000"
    store = SweepStore(sweep_id, root)
    trials = []
    for index, (name, outcome) in enumerate(outcomes.items()):
        key = f"{index:016x}"
        folder = store.trial_dir(key)
        trial = make_trial(folder, key, workload="bridgetower").model_copy(
            update={"sweep_id": sweep_id, "suite": "projected", "axes": {"pool": "cpu", "name": name}, "index": index}
        )
        atomic_write(folder / "trial.json", trial.model_dump_json())
        trials.append(trial)
        write_journal(folder, 1, steps)
        reason = None if outcome is Outcome.OK else "made up"
        store.save_result(TrialResult(key=key, attempt=1, outcome=outcome, reason=reason, started_at=1.7e9, finished_at=1.7e9 + 60))
    plan = make_plan(trials)
    store.save_plan(plan)
    return store, plan


def all_runs(sweep_id: str, role: str = "trial") -> list[Any]:
    """Every run of the sweep that is not deleted."""
    client = connect()
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return list(client.search_runs(experiments, f"tags.`sweep.id` = '{sweep_id}' and tags.`sweep.role` = '{role}'", max_results=5000))


def check_projection(store: SweepStore) -> None:
    """What must hold after any fault and a resume. Raises AssertionError.

    The keys in MLflow are the matrix; one canonical run each; a FINISHED run has each (metric, step) of its journal once, with its time
    and value; any other run is FAILED or KILLED with a reason; none is RUNNING.
    """
    client, plan = connect(), store.load_plan()
    runs = all_runs(store.sweep_id)
    assert {run.data.tags["trial.key"] for run in runs} == {trial.key for trial in plan.trials}
    twice = Counter((run.data.tags["trial.key"], run.data.tags["trial.attempt"]) for run in runs)
    assert max(twice.values()) == 1, twice
    for run in [*runs, *all_runs(store.sweep_id, "parent")]:
        assert run.info.status in ("FINISHED", "FAILED", "KILLED"), (run.info.run_name, run.info.status)
        if run.info.status != "FINISHED":
            assert run.data.tags.get("reason") or run.data.tags["sweep.role"] == "parent", run.info.run_name
    assert len(all_runs(store.sweep_id, "parent")) == 1
    for trial in plan.trials:
        result = store.result(trial.key)
        assert result is not None
        mine = [run for run in runs if run.data.tags["trial.key"] == trial.key and run.data.tags["trial.attempt"] == str(result.attempt)]
        assert len(mine) == 1
        assert (mine[0].info.status == "FINISHED") == (result.outcome is Outcome.OK)
        if result.outcome is not Outcome.OK:
            continue
        journal = read_journal(store.trial_dir(trial.key) / "journal.jsonl")
        expected = {
            "loss": {(s["step"], round(s["t"] * 1000), s["loss"]) for s in journal.steps},
            "step_time_s": {(s["step"], round(s["t"] * 1000), s["total_s"]) for s in journal.steps},
            "data_wait_s": {(s["step"], round(s["t"] * 1000), s["data_wait_s"]) for s in journal.steps},
            "samples_per_s": {(s["step"], round(s["t"] * 1000), s["samples"] / s["total_s"]) for s in journal.steps},
        }
        assert expected["loss"]
        if journal.window is not None and journal.window.get("communication") == COMMUNICATION:
            told = [mine[0].data.metrics[f"communication_{name}"] for name in ("s", "exposed_s", "share")]
            assert told == pytest.approx([0.008, 0.005, 0.05])
        for name in METRICS:
            rows = [(m.step, m.timestamp, m.value) for m in client.get_metric_history(mine[0].info.run_id, name)]
            assert len(rows) == len(journal.steps), f"{name}: {len(rows)} rows for {len(journal.steps)} steps"
            assert all(math.isfinite(value) for *_, value in rows)
            assert set(rows) == expected[name], name
