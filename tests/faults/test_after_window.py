"""What ends a trial after all that is compared was measured takes no measurement away; what ends it before does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.journal.journal import Journal, read_journal
from cluster.launchers import processes
from cluster.launchers.local import LocalLauncher
from cluster.pools.pool import Pool
from cluster.sampler.state_file import read_records
from experiments.trial import Outcome, TrialResult
from tests.clusters_support import Clusters
from tests.process_support import commands_of
from tests.running_support import Running, follow, launcher

__all__ = ["follow"]  # a fixture
pytestmark = [pytest.mark.fault, pytest.mark.timeout(900)]
STEPS, WARM_UP = 5, 2
TRACED: dict[str, Any] = {"steps": STEPS, "warmup_steps": WARM_UP, "profile_steps": 2, "communication_steps": 0}
IN_TRACES = {"fault_step": STEPS + WARM_UP + 2, **TRACED}  # the second traced step
IN_WINDOW = {"fault_step": WARM_UP + 2, **TRACED}


@pytest.fixture
def embedded() -> Iterator[LocalLauncher]:
    made = LocalLauncher(Pool(name="cpu", device="cpu", address="embedded"))
    yield made
    made.close()


def fired_in(running: Running) -> Path:
    """The file that the fault writes when it fires."""
    return Path(running.trial.parameters["marker_dir"]) / "fault-fired"


def counts(running: Running, result: TrialResult, fired: str, why: str) -> Journal:
    """The trial is ok by its first attempt, with its measurement, and says that its traces are missing and why; nothing of it is left."""
    marks = fired_in(running).read_text().splitlines()
    assert len(marks) == 1 and marks[0].startswith(f"{fired} at step {IN_TRACES['fault_step']}, "), marks
    assert (result.outcome, result.reason, result.attempt) == (Outcome.OK, None, 1), result
    journal = read_journal(running.folder / "journal.jsonl", 1, running.trial.key)
    assert journal.mark is not None and journal.mark.closed and journal.mark == result.journal
    assert [step["step"] for step in journal.steps if step["measured"]] == [3, 4, 5, 6, 7] and journal.window is not None
    assert result.summary["throughput"] == pytest.approx(journal.window["samples"] / journal.window["wall_s"])
    assert "traces" not in journal.window and "profile" not in journal.window
    told = [note["text"] for note in journal.notes if note["text"].startswith("no steps were traced: ")]
    assert len(told) == 1 and why in told[0], journal.notes
    assert result.device_state is not None
    assert read_records(running.folder / "device_state.jsonl", 1, result.device_state), "the sampler's records are those of the result"
    assert processes.of_trial(running.trial.key) == []
    return journal


def on_storage(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in clusters.credentials.items():
        monkeypatch.setenv(name, value)
    return launcher(clusters.a, resources={"bench_a": 1}, storage=clusters.storage)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("storage", [False, True], ids=["shared folder", "storage"])
def test_a_rank_of_a_ray_job_that_is_killed_in_a_traced_step(
    clusters: Clusters, follow: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, storage: bool, rank: int
) -> None:
    ray = on_storage(clusters, monkeypatch) if storage else launcher(clusters.b, resources={"bench_b": 1})
    running = follow(ray, f"ffff0000000001{rank}{storage:d}", retries=0, devices=2, fault="kill", fault_rank=rank, **IN_TRACES)
    counts(running, running.end(), "kill", "worker_lost: ")


def test_a_rank_of_a_ray_job_that_is_killed_in_its_window_is_a_lost_worker(clusters: Clusters, follow: Callable[..., Running]) -> None:
    ray = launcher(clusters.b, resources={"bench_b": 1})
    running = follow(ray, "ffff000000000120", retries=0, devices=2, fault="kill", fault_rank=1, **IN_WINDOW)
    result = running.end()
    assert "kill at step 4" in fired_in(running).read_text()
    assert result.outcome is Outcome.INFRA and str(result.reason).startswith("worker_lost: "), result
    assert "throughput" not in result.summary and processes.of_trial(running.trial.key) == []


@pytest.mark.parametrize("storage", [False, True], ids=["shared folder", "storage"])
def test_the_driver_of_a_ray_job_that_is_killed_in_the_traces(
    clusters: Clusters, follow: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, storage: bool
) -> None:
    ray = on_storage(clusters, monkeypatch) if storage else launcher(clusters.b, resources={"bench_b": 1})
    running = follow(ray, f"ffff00000000013{storage:d}", retries=0, devices=2, fault="hang", fault_rank=1, **IN_TRACES)
    running.until(fired_in(running).exists)
    drivers = [
        one for one, command in commands_of(running.trial.key).items() if "cluster.worker.main" in command and "--placement" in command
    ]
    assert drivers
    for driver in drivers:
        driver.kill()
    counts(running, running.end(), "hang", "worker lost: ")


def test_a_node_that_is_lost_to_ray_in_the_traces(clusters: Clusters, follow: Callable[..., Running]) -> None:
    """Its job says that it runs for ever, where what follows it went with the node's raylet before it could tell."""
    ray = launcher(clusters.b, resources={"bench_b": 1})
    running = follow(ray, "ffff000000000150", retries=0, fault="hang", **IN_TRACES)
    running.until(fired_in(running).exists)
    state = running.folder / "device_state.jsonl"
    running.until(lambda: state.exists() and b"\n" in state.read_bytes())  # on a busy machine the sampler begins later than the steps
    try:
        parts = [one for one in clusters.b.processes() if one.name() in ("raylet", "ray::DashboardAgent", "ray::JobSupervisor")]
        assert len(parts) == 3, parts
        for part in parts:
            part.suspend()
        for part in parts:
            part.kill()
        result = running.end()
        assert clusters.b.jobs()[f"{running.trial.key}-a1"] == "RUNNING"
    finally:
        clusters.b.stop()  # without a raylet it takes no job: it is started again for a test that needs it
    counts(running, result, "hang", "worker lost: pool b has lost its node: ")


def test_a_process_that_is_killed_in_its_traces(embedded: LocalLauncher, follow: Callable[..., Running]) -> None:
    """As the kernel does for want of memory. It alone could say how its trial went."""
    running = follow(embedded, "ffff000000000140", retries=0, fault="kill", **IN_TRACES)
    counts(running, running.end(), "kill", "worker lost: killed by SIGKILL")


def test_a_process_that_is_killed_in_its_window_is_lost(embedded: LocalLauncher, follow: Callable[..., Running]) -> None:
    running = follow(embedded, "ffff000000000141", retries=0, fault="kill", **IN_WINDOW)
    result = running.end()
    assert "kill at step 4" in fired_in(running).read_text()
    assert (result.outcome, result.reason) == (Outcome.INFRA, "worker lost: killed by SIGKILL")


def test_ranks_that_wait_for_each_other_in_their_traces(embedded: LocalLauncher, follow: Callable[..., Running]) -> None:
    running = follow(embedded, "ffff000000000142", retries=0, devices=2, fault="hang", fault_rank=1, **IN_TRACES)
    running.until(fired_in(running).exists)
    running.impatient(2.0)
    counts(running, running.end(), "hang", "no progress for 2 s after step 7")


def test_a_supervisor_that_is_killed_while_its_ranks_trace(embedded: LocalLauncher, follow: Callable[..., Running]) -> None:
    running = follow(embedded, "ffff000000000143", retries=0, devices=2, fault="hang", fault_rank=1, **IN_TRACES)
    running.until(fired_in(running).exists)
    trials = processes.of_trial(running.trial.key)
    (supervisor,) = [one for one in trials if one.ppid() not in {other.pid for other in trials}]
    supervisor.kill()
    counts(running, running.end(), "hang", "worker lost: killed by SIGKILL")


def test_a_trial_that_is_told_to_end_in_its_traces_is_cancelled(embedded: LocalLauncher, follow: Callable[..., Running]) -> None:
    running = follow(embedded, "ffff000000000144", retries=0, fault="hang", **IN_TRACES)
    running.until(fired_in(running).exists)
    (process,) = [one for one in processes.of_trial(running.trial.key) if isinstance(one, psutil.Process)][:1]
    os.kill(process.pid, signal.SIGTERM)
    result = running.end()
    assert (result.outcome, result.reason) == (Outcome.CANCELLED, "told to end (SIGTERM)")
