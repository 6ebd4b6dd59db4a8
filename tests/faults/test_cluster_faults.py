"""What happens to trials on a cluster: hangs, heads and nodes that die, hosts out of memory, orphans (rows 2, 4, 5, 6, 22, 23)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.journal.journal import read_journal
from cluster.launchers import Launcher, processes, ray_job
from cluster.launchers.local import LocalLauncher
from cluster.launchers.ray_job import RayJobLauncher
from cluster.pools.pool import Pool
from cluster.process_marks import MARK, NO_TRIAL
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.failure_policy import Policy
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.run_trial import TrialRunner
from tasks.sweep.store import SweepStore
from tests.clusters_support import Cluster, Clusters
from tests.contracts import make_trial
from tests.stack_support import until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900)]
EXTRA = str(Path(__file__).parents[1] / "workloads_for_tests")
slow = pytest.mark.skipif("not __import__('os').environ.get('SWEEPBENCH_SLOW')", reason="takes a minute: SWEEPBENCH_SLOW=1")


class Remembers(SweepStore):
    """Keeps every result that was published, not only the last."""

    def save_result(self, result: TrialResult) -> None:
        super().save_result(result)
        self.results = [*getattr(self, "results", []), result]


class Running:
    """A trial that a runner follows in a thread of its own."""

    def __init__(self, folder: Path, launcher: Launcher, key: str, policy: Policy, pool: PoolWatch, **parameters: Any) -> None:
        self.store = Remembers("contract-20260101-000000-0000", folder)
        self.folder = self.store.trial_dir(key)
        values = {"fault_times": 1, "marker_dir": str(folder), "threads": 1, **parameters}
        self.trial: Trial = make_trial(self.folder, key, workload="faulty", **values)
        self.stop, self.result, self.error = threading.Event(), None, None
        self._runner = TrialRunner(self.store, launcher, policy, self.stop, lambda trial, attempt, records: None, pool)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result: TrialResult | None = self._runner.run(self.trial)
        except BaseException as error:
            self.error: BaseException | None = error

    def impatient(self, seconds: float) -> None:
        """From now on the watchdog waits only for so long."""
        object.__setattr__(self._runner.policy, "hang_timeout_s", seconds)

    def until_step(self, step: int, attempt: int = 1) -> None:
        self.until(lambda: (journal := self.journal()).attempt == attempt and len(journal.steps) >= step)

    def until(self, condition: Callable[[], bool], timeout_s: float = 240) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self._thread.is_alive() and time.monotonic() < deadline, (self.result, self.error)
            time.sleep(0.05)

    def journal(self) -> Any:
        return read_journal(self.folder / "journal.jsonl")

    def end(self, timeout_s: float = 240) -> TrialResult:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive() and self.result is not None, self.error
        return self.result

    def close(self) -> None:
        self.stop.set()
        self._thread.join(120)


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    """Starts a trial and follows it; what still runs at the test's end is stopped."""
    monkeypatch.setenv("SWEEPBENCH_EXTRA", EXTRA)
    begun: list[Running] = []

    def begin(launcher: Launcher, key: str, *, wait_s: float = 60, lost_after_s: float = 2, **more: Any) -> Running:
        policy = Policy(**{name: more.pop(name) for name in ("retries", "hang_timeout_s") if name in more})
        begun.append(Running(tmp_path, launcher, key, policy, PoolWatch("p", wait_s, lost_after_s), **more))
        return begun[-1]

    yield begin
    for running in begun:
        running.close()


def launcher(of: Cluster, **entry: Any) -> RayJobLauncher:
    return RayJobLauncher(Pool.model_validate({"name": of.name, **of.entry(accelerators_per_node=2, **entry)}))


def test_row_4_two_ranks_that_wait_for_each_other_for_ever_are_a_hang(follow: Callable[..., Running], tmp_path: Path) -> None:
    embedded = LocalLauncher(Pool(name="cpu", device="cpu", address="embedded"))
    hung = follow(embedded, "ffff000000000004", devices=2, fault="hang", fault_rank=1)
    hung.until((tmp_path / "fault-fired").exists)  # rank 1 sleeps; rank 0 is inside a collective
    hung.until_step(2)
    hung.impatient(2.0)  # not earlier: on a busy machine two seconds without a record are normal before the first step
    result = hung.end()
    embedded.close()
    assert (result.outcome, result.reason) == (Outcome.HANG, "no progress for 2 s after step 2")
    assert processes.of_trial(hung.trial.key) == []


def test_row_23_a_cancelled_job_leaves_no_process(clusters: Clusters, follow: Callable[..., Running], tmp_path: Path) -> None:
    running = follow(launcher(clusters.b), "ffff000000000023", fault="setsid_child", steps=1_000_000)
    running.until((tmp_path / "fault-fired").exists)
    running.until_step(5)
    assert any("time.sleep(600)" in " ".join(process.cmdline()) for process in processes.of_trial(running.trial.key))  # in its own session
    running.stop.set()
    assert running.end().outcome is Outcome.CANCELLED
    assert clusters.b.jobs()[f"{running.trial.key}-a1"] == "STOPPED"
    assert processes.of_trial(running.trial.key) == []


def template_of(running: Running) -> psutil.Process:
    """The process from which the trial was forked."""
    trial = next(process for process in processes.of_trial(running.trial.key) if "cluster.worker.template" in process.cmdline())
    template = trial.parent()
    assert template is not None and template.environ()[MARK] == NO_TRIAL
    return template


def test_a_template_that_is_killed_costs_an_attempt(clusters: Clusters, follow: Callable[..., Running]) -> None:
    running = follow(launcher(clusters.b, resources={"bench_b": 1}), "ffff000000000024", retries=1, steps=100, step_sleep_s=0.05)
    running.until_step(3)
    template_of(running).kill()
    result = running.end()
    first, *later = running.store.results  # a disturbed one, as on a busy machine, is measured once more
    assert (first.outcome, first.attempt) == (Outcome.INFRA, 1)
    assert first.reason is not None and "the template process was ended, and its trial with it" in first.reason
    assert [again.outcome for again in later] == [Outcome.OK] * len(later) and result in later
    assert result.environment["start"] == "warm"
    assert processes.of_trial(running.trial.key) == []


@contextmanager
def ended(cluster: Cluster) -> Iterator[None]:
    """What a cluster without a head still runs ends with the block."""
    try:
        yield
    finally:
        if not cluster.has_head():
            cluster.stop()


def test_row_6_a_head_that_dies_under_a_trial_and_stays_away(
    clusters: Clusters, follow: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detected, and the trial ends as infra after the stated time. Once the node's Ray is gone too, neither trial nor template is left."""
    with ended(clusters.b):
        running = follow(launcher(clusters.b), "ffff000000000060", wait_s=3, lost_after_s=1, steps=1_000_000, step_sleep_s=0.05)
        running.until_step(3)
        template = template_of(running)
        assert clusters.b.kill("gcs_server") == 1
        monkeypatch.setattr(ray_job, "_TIMEOUT_S", (1.0, 1.0))  # its dashboard takes requests for another minute
        running.until(lambda: clusters.b.get("/api/jobs/")[0] != 200)  # the fault is there
        result = running.end()
        (raylet,) = [process for process in clusters.b.processes() if process.name() == "raylet"]
        raylet.kill()
        template.wait(60)
        until(lambda: processes.of_trial(running.trial.key) == [])  # the shell by which Ray watches over a job sleeps up to a second
    assert result.outcome is Outcome.INFRA
    assert result.reason is not None and result.reason.endswith("(waited 3 s for the pool)"), result
    assert len(running.journal().steps) >= 3  # what was measured is kept


@slow
def test_row_6_a_head_that_dies_under_a_trial_and_comes_back(clusters: Clusters, follow: Callable[..., Running]) -> None:
    """The trial waits for it, and runs again from the start."""
    with ended(clusters.b):
        running = follow(launcher(clusters.b), "ffff000000000006", steps=20, step_sleep_s=0.3)
        running.until_step(3)
        assert clusters.b.kill("gcs_server") == 1
        running.until(lambda: clusters.b.get("/api/jobs/")[0] != 200)
        clusters.b.stop()
        clusters.b.start()
        result = running.end()
    assert (result.outcome, result.attempt) == (Outcome.OK, 2)
    assert [step["step"] for step in running.journal().steps] == list(range(1, 23))


@contextmanager
def cluster(name: str, **values: Any) -> Iterator[Cluster]:
    made = Cluster(name, **values)
    try:
        made.start()
        yield made
    finally:
        made.close()


@slow
def test_row_2_a_host_out_of_memory_is_bounded(follow: Callable[..., Running]) -> None:
    """Ray's monitor kills what uses memory once the host has more in use than its threshold."""
    used = psutil.virtual_memory().percent / 100
    limits = {"RAY_memory_usage_threshold": f"{max(0.01, used - 0.01):.3f}", "RAY_memory_monitor_refresh_ms": "100"}
    with cluster("oom", resources={"bench": 2}, **limits) as small:
        running = follow(launcher(small, resources={"bench": 1}), "ffff000000000002", retries=1, steps=1_000_000)
        result = running.end(240)
    assert result.outcome is Outcome.INFRA and result.attempt == 2  # bounded: as often as it may be tried
    assert result.reason is not None and result.reason.startswith("host_oom"), result


@slow
def test_row_5_a_drained_node_has_attempts_of_its_own_and_then_is_infra(follow: Callable[..., Running]) -> None:
    with cluster("drain", nodes=True) as head:
        head.add_node({"bench": 2})
        ray = launcher(head, resources={"bench": 1})
        running = follow(ray, "ffff000000000005", retries=1, wait_s=5, steps=1_000_000, step_sleep_s=0.01)
        running.until_step(3)
        assert head.drain("bench") == 1  # as a cloud announces that it takes a node back
        result = running.end(240)
    assert [result.attempt for result in running.store.results] == [1, 2]  # the second found no node in the time that it had
    assert result.outcome is Outcome.INFRA
    assert result.reason is not None and ("no node has room" in result.reason or "worker" in result.reason), result


@slow
def test_row_22_two_sweeps_on_one_pool_never_share_a_node(clusters: Clusters, follow: Callable[..., Running]) -> None:
    """Two flows, each with its own idea of what is free (as on two machines): Ray gives the node to one after the other."""
    one, two = (
        follow(launcher(clusters.b, resources={"bench_b": 1}), f"ffff00000000022{number}", steps=20, step_sleep_s=0.2) for number in (1, 2)
    )
    assert (one.end().outcome, two.end().outcome) == (Outcome.OK, Outcome.OK)
    spans = sorted((journal.steps[0]["t"], journal.steps[-1]["t"]) for journal in (one.journal(), two.journal()))
    assert spans[0][1] < spans[1][0]
