"""Trials as Ray jobs on a real head with token authentication: the launcher's contract, its errors, several workers, the real flow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.journal.journal import read_journal
from cluster.launchers import LaunchError, LaunchRefused
from cluster.launchers.ray_job import RayJobLauncher
from cluster.pools.pool import Pool
from experiments.trial import Outcome
from tasks.sweep.store import SweepStore, list_sweeps
from tests.contracts import launcher_contract, make_trial, result_of, wait
from tests.mlflow_support import all_runs, check_projection
from tests.process_support import command_of
from tests.stack_support import EXTRA, Stack, post, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def launcher(stack: Stack, **changes: str) -> RayJobLauncher:
    values = {"name": "local", "device": "cpu", "address": stack.settings.ray_url, "token_file": str(stack.settings.token), **changes}
    return RayJobLauncher(Pool.model_validate(values))


def test_the_ray_job_launcher_keeps_the_contract(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(EXTRA))
    launcher_contract(lambda: launcher(stack), tmp_path)
    assert result_of(tmp_path / "done").environment["start"] == "warm"


def test_a_pool_may_ask_for_fresh_processes(stack: Stack, tmp_path: Path) -> None:
    ray = launcher(stack, start="fresh")
    launch = ray.start(make_trial(tmp_path, "bbbb000000000003"), tmp_path, 1)
    assert wait(ray, launch).exit_code == 0, ray.log(launch, tmp_path)
    ray.stop(launch)
    assert (result_of(tmp_path).outcome, result_of(tmp_path).environment["start"]) == (Outcome.OK, "fresh")


def test_a_wrong_token_and_a_head_that_is_down_are_named(stack: Stack, tmp_path: Path) -> None:
    wrong = tmp_path / "token"
    wrong.touch(mode=0o600)
    wrong.write_text("0" * 64)
    trial = make_trial(tmp_path / "trial", "bbbb000000000001")
    with pytest.raises(LaunchRefused, match=rf"pool local at \S+ refuses the token of {wrong}: .*token"):
        launcher(stack, token_file=str(wrong)).start(trial, tmp_path / "trial", 1)
    with pytest.raises(LaunchRefused, match=r"others may read the token file .*chmod 600"):
        wrong.chmod(0o644)
        launcher(stack, token_file=str(wrong)).start(trial, tmp_path / "trial", 1)
    with pytest.raises(LaunchError, match=r"pool local at http://127\.0\.0\.1:9 does not answer"):
        launcher(stack, address="http://127.0.0.1:9").start(trial, tmp_path / "trial", 1)
    assert not (tmp_path / "trial" / "journal.jsonl").exists()


def test_two_workers_and_a_job_submitted_twice(stack: Stack, tmp_path: Path) -> None:
    """A submit whose reply was lost is made again: the job is followed, not started a second time, and not taken for a failure."""
    ray = launcher(stack)
    trial = make_trial(tmp_path, "bbbb000000000002", devices=2, threads=1)
    first, second = ray.start(trial, tmp_path, 1), ray.start(trial, tmp_path, 1)
    assert first == second
    assert wait(ray, second).exit_code == 0, ray.log(second, tmp_path)
    ray.stop(second)  # as a sweep does: what the job leaves behind ends here
    result, journal = result_of(tmp_path), read_journal(tmp_path / "journal.jsonl")
    assert result.outcome is Outcome.OK, result
    assert journal.environment["world_size"] == 2
    assert journal.window is not None and [rank["rank"] for rank in journal.window["ranks"]] == [0, 1]
    assert [step["step"] for step in journal.steps] == list(range(1, 8))  # one process ran it, once
    jobs = [job for job in stack.ray("/api/jobs/")[1] if job["submission_id"] == first.id]
    assert [(job["status"], job["metadata"]["job_name"]) for job in jobs] == [("SUCCEEDED", trial.name)]


@pytest.mark.parametrize("rank", [1, 0])
def test_a_rank_that_is_killed_in_the_traces_does_not_cost_its_job_the_measurement(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """Steps 3 to 7 are the window, 8 and 9 are traced. No flow looks on: the job's driver completes the journal of its lost rank 0.

    tests/faults/test_after_window.py has the rank that is killed in the window.
    """
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(EXTRA))
    ray, fault = launcher(stack), {"fault": "kill", "fault_rank": rank, "fault_step": 9, "marker_dir": str(tmp_path)}
    trial = make_trial(tmp_path, f"bbbb0000000001{rank}9", "faulty", devices=2, threads=1, communication_steps=0, profile_steps=2, **fault)
    launch = ray.start(trial, tmp_path, 1)
    assert wait(ray, launch).exit_code == 0, ray.log(launch, tmp_path)
    ray.stop(launch)
    assert [line.partition(",")[0] for line in (tmp_path / "fault-fired").read_text().splitlines()] == ["kill at step 9"]
    result, journal = result_of(tmp_path), read_journal(tmp_path / "journal.jsonl", trial=trial.key)
    told = [note["text"] for note in journal.notes if note["text"].startswith("no steps were traced: the trial ended in its traces, ")]
    assert result.outcome is Outcome.OK, result
    assert journal.mark is not None and journal.mark.closed and journal.mark == result.journal
    assert [line["step"] for line in journal.steps if line["measured"]] == [3, 4, 5, 6, 7]
    assert journal.window is not None and "traces" not in journal.window and "profile" not in journal.window
    assert result.reason is None and result.summary["throughput"] == pytest.approx(journal.window["samples"] / journal.window["wall_s"])
    assert len(told) == 1 and "after all else was measured: worker_lost: " in told[0], journal.notes


@pytest.fixture
def sweeps_of(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """This process looks at the runs and the MLflow server of the stack."""
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(stack.settings.runs))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", stack.settings.mlflow_url)
    yield stack
    monkeypatch.undo()


def test_the_deployment_runs_trials_as_ray_jobs(sweeps_of: Stack) -> None:
    """One trial ends ok and one fails: both are recorded, everywhere, and --watch ends with status 1."""
    done = sweeps_of.prefect("deployment", "run", "sweep/real", "--watch", timeout=400)
    assert done.returncode == 1, done.stdout + done.stderr
    store = SweepStore(next(sweep for sweep in list_sweeps() if sweep.startswith("two-")))
    plan = store.load_plan()
    results = {trial.axes["fault"]: store.result(trial.key) for trial in plan.trials}
    assert {fault: result.outcome for fault, result in results.items() if result} == {"none": Outcome.OK, "raise": Outcome.CRASHED}
    check_projection(store)
    jobs = {job["submission_id"]: job for job in sweeps_of.ray("/api/jobs/")[1]}
    assert {f"{trial.key}-a1" for trial in plan.trials} <= set(jobs)
    assert all("deliberate failure" in (store.trial_dir(trial.key) / "log.txt").read_text() for trial in plan.trials[1:])

    url = f"{sweeps_of.settings.prefect_url}/api"
    flow_run = post(f"{url}/flow_runs/filter", {"flow_runs": {"name": {"any_": [store.sweep_id]}}})[1][0]
    mine = {"flow_runs": {"id": {"any_": [flow_run["id"]]}}}
    states = {task["name"]: task["state_name"] for task in post(f"{url}/task_runs/filter", mine)[1]}
    assert {trial.name: states[trial.name] for trial in plan.trials} == dict(
        zip([trial.name for trial in plan.trials], ["Completed", "crashed"], strict=True)
    )
    artifacts = {artifact["key"]: artifact for artifact in post(f"{url}/artifacts/filter", mine)[1]}
    assert {"two-progress", "two-report", "two-local-none-1", "two-local-raise-1"} == set(artifacts)
    assert artifacts["two-progress"]["data"] == 100
    assert "Compare the trials in MLflow" in artifacts["two-report"]["data"]
    text = json.dumps(post(f"{url}/logs/filter", {"logs": {"flow_run_id": {"any_": [flow_run["id"]]}}, "limit": 200})[1])
    assert "deliberate failure" in text


def test_cancel_in_prefect_stops_the_ray_job(sweeps_of: Stack) -> None:
    endless = ["-p", "suite=slow", "-p", 'set={"steps": 100000}']  # the trial does not end before Prefect has passed the cancellation on
    command = [sys.executable, "-m", "prefect", "deployment", "run", "sweep/real", "--watch", *endless]
    watch = subprocess.Popen(command, env=sweeps_of.typed, cwd=sweeps_of.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until(lambda: any(_steps(store) > 3 for store in _slow()), timeout_s=240)
        (store,) = _slow()
        url = f"{sweeps_of.settings.prefect_url}/api/flow_runs"
        flow_run = post(f"{url}/filter", {"flow_runs": {"name": {"any_": [store.sweep_id]}}})[1][0]
        post(f"{url}/{flow_run['id']}/set_state", {"state": {"type": "CANCELLING"}})
        text, _ = watch.communicate(timeout=240)
    finally:
        if watch.poll() is None:
            os.kill(watch.pid, signal.SIGKILL)
            watch.communicate()
    assert watch.returncode == 1, text
    trial = store.load_plan().trials[0]
    result = store.result(trial.key)
    assert result is not None
    assert (result.outcome, result.reason) == (Outcome.CANCELLED, "cancelled in Prefect")
    (run,) = all_runs(store.sweep_id)
    assert (run.info.status, run.data.tags["reason"]) == ("KILLED", "cancelled in Prefect")
    assert [parent.info.status for parent in all_runs(store.sweep_id, "parent")] == ["KILLED"]
    states = lambda: {job["submission_id"]: job["status"] for job in sweeps_of.ray("/api/jobs/")[1]}  # noqa: E731
    until(lambda: states()[f"{trial.key}-a1"] != "RUNNING")  # a launcher does not wait for long until Ray says so
    assert not [member for member in sweeps_of.members() if trial.key in " ".join(command_of(member))]


def _slow() -> list[SweepStore]:
    return [SweepStore(sweep) for sweep in list_sweeps() if sweep.startswith("slow-")]


def _steps(store: SweepStore) -> int:
    return len(read_journal(store.trial_dir(store.load_plan().trials[0].key) / "journal.jsonl").steps)
