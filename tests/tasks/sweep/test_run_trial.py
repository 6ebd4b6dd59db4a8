"""Following trials over pools that come and go: decided on a launcher without a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster import launchers
from cluster.journal.journal import JournalWriter
from cluster.launchers import Launch, LaunchError, LaunchRefused, Status
from experiments.atomic_file import atomic_write
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep import begin_attempt, follow_attempt
from tasks.sweep.failure_policy import Policy
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.run_trial import TrialRunner
from tasks.sweep.store import SweepStore
from tests.contracts import make_trial

KEY = "dddd000000000001"


@dataclass
class Cluster:
    """A launcher whose jobs run in this dictionary. `down`: why it does not answer; `on_ask` is called before each answer."""

    store: SweepStore
    jobs: dict[str, str] = field(default_factory=dict)
    down: LaunchError | None = None
    storage_down: LaunchError | None = None
    asked: int = 0
    started: list[str] = field(default_factory=list)
    on_ask: Callable[[Cluster], None] = lambda cluster: None

    def _ask(self) -> None:
        self.asked += 1
        self.on_ask(self)
        if self.down:
            raise self.down

    def start(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        self._ask()
        launch = Launch(launcher="ray_job", key=trial.key, attempt=attempt, id=f"{trial.key}-a{attempt}")
        self.jobs.setdefault(launch.id, "RUNNING")
        self.started.append(launch.id)
        return launch

    def status(self, launch: Launch) -> Status:
        self._ask()
        state = self.jobs.get(launch.id)
        return Status(running=state in ("RUNNING", "PENDING"), pending=state == "PENDING", message=None if state else "unknown job")

    def fetch(self, launch: Launch, trial_dir: Path, *, last: bool = False) -> None:
        self._ask()
        if self.storage_down:
            raise self.storage_down

    def keep(self, launch: Launch, trial_dir: Path) -> None:
        self._ask()

    def stop(self, launch: Launch, grace_s: float = 5.0) -> None:
        self._ask()
        if launch.id in self.jobs:
            self.jobs[launch.id] = "STOPPED"

    def log(self, launch: Launch, trial_dir: Path) -> str:
        return "log"

    def finish(self, attempt: int, outcome: Outcome = Outcome.OK) -> None:
        """The job publishes a result and ends."""
        reason = None if outcome is Outcome.OK else "made up"
        result = TrialResult(key=KEY, attempt=attempt, outcome=outcome, reason=reason, started_at=1.0, finished_at=2.0)
        atomic_write(self.store.trial_dir(KEY) / "result.json", result.model_dump_json())
        self.jobs[f"{KEY}-a{attempt}"] = "SUCCEEDED"


@dataclass
class Told:
    """What was said about the pool."""

    said: list[tuple[str | None, float]] = field(default_factory=list)

    def __call__(self, pool: str, problem: str | None, left: float) -> None:
        self.said.append((problem, left))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(follow_attempt, "_POLL_S", 0.01)
    monkeypatch.setattr(begin_attempt, "_ASK_AGAIN_S", 0.01)
    return Cluster(SweepStore("contract-20260101-000000-0000", tmp_path))


def runner(cluster: Cluster, told: Told | None = None, **policy: float) -> TrialRunner:
    watch = {name: policy.pop(name) for name in ("wait_s", "lost_after_s") if name in policy}
    pool = PoolWatch("p", **{"wait_s": 0.1, "lost_after_s": 0.1, **watch}, tell=told or Told())
    return TrialRunner(cluster.store, cluster, Policy(**policy), threading.Event(), lambda trial, attempt, records: None, pool)


def trial(cluster: Cluster) -> Trial:
    return make_trial(cluster.store.trial_dir(KEY), KEY)


def at(number: int, do: Callable[[Cluster], object]) -> Callable[[Cluster], None]:
    """Calls `do` when the launcher is asked for the n-th time."""
    return lambda cluster: do(cluster) if cluster.asked == number else None


def test_a_pool_that_is_down_is_waited_for_and_said_to_be(cluster: Cluster) -> None:
    told = Told()
    cluster.down = LaunchError("pool p does not answer")

    def back(cluster: Cluster) -> None:
        cluster.down = None
        cluster.on_ask = at(7, lambda cluster: cluster.finish(1))

    cluster.on_ask = at(5, back)
    result = runner(cluster, told, wait_s=60).run(trial(cluster))
    assert result.outcome is Outcome.OK and cluster.started == [f"{KEY}-a1"]
    assert [problem for problem, _ in told.said] == ["pool p does not answer", None]
    assert told.said[0][1] == pytest.approx(60, abs=1)


def test_after_the_stated_time_trials_end_as_infra_and_the_next_ones_do_not_wait_anew(cluster: Cluster) -> None:
    cluster.down = LaunchError("pool p does not answer")
    run = runner(cluster, wait_s=0.2)
    began = time.monotonic()
    first = run.run(trial(cluster))
    assert time.monotonic() - began >= 0.2
    assert (first.outcome, first.reason) == (Outcome.INFRA, "not started: pool p does not answer (waited 0.2 s for the pool)")
    asked = cluster.asked
    assert run.run(trial(cluster)).outcome is Outcome.INFRA
    assert cluster.asked == asked + 1


def test_a_refusal_is_not_waited_for(cluster: Cluster) -> None:
    told = Told()
    cluster.down = LaunchRefused("pool p refuses the token")
    result = runner(cluster, told, wait_s=600).run(trial(cluster))
    assert (result.outcome, result.reason) == (Outcome.INFRA, "not started: pool p refuses the token")
    assert cluster.asked == 1 and told.said == [("pool p refuses the token", 0.0)]


def left_by_a_dead_flow(cluster: Cluster, state: str) -> Trial:
    made = trial(cluster)
    launch = cluster.start(made, cluster.store.trial_dir(KEY), 1)
    launchers.save(launch, cluster.store.trial_dir(KEY))
    cluster.jobs[launch.id] = state
    cluster.asked, cluster.started = 0, []
    return made


def test_what_a_dead_flow_left_running_is_followed_by_its_id(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.on_ask = at(6, lambda cluster: cluster.finish(1))
    result = runner(cluster).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])


def test_it_is_not_run_again_because_its_pool_does_not_answer(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.down = LaunchError("pool p does not answer")

    def back(cluster: Cluster) -> None:
        cluster.down = None
        cluster.finish(1)

    cluster.on_ask = at(5, back)
    result = runner(cluster, lost_after_s=60).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])


def test_one_that_was_given_up_while_its_pool_was_away_is_followed_on_when_the_pool_is_back(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.down = LaunchError("pool p does not answer")
    first = runner(cluster, wait_s=0.05, lost_after_s=0.05, retries=0).run(made)
    assert first.outcome is Outcome.INFRA and cluster.started == []  # neither then
    cluster.down, cluster.asked = None, 0
    cluster.on_ask = at(6, lambda cluster: cluster.finish(1))
    result = runner(cluster).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])  # nor now is it run twice


def test_a_result_that_comes_after_the_trial_was_given_up_counts(cluster: Cluster) -> None:
    def away(cluster: Cluster) -> None:
        cluster.down = LaunchError("pool p does not answer")
        cluster.on_ask = at(cluster.asked + 30, lambda cluster: cluster.finish(1))  # into the folder that both share

    cluster.on_ask = at(4, away)
    result = runner(cluster, lost_after_s=0.05, wait_s=1).run(trial(cluster))
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [f"{KEY}-a1"])


def test_what_ended_while_no_flow_looked_is_taken_and_what_was_lost_is_run_again(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.jobs.clear()  # the head was restarted
    cluster.on_ask = lambda cluster: cluster.finish(2) if cluster.jobs.get(f"{KEY}-a2") == "RUNNING" else None
    result = runner(cluster, retries=0).run(made)  # the lost attempt costs no retry
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 2, [f"{KEY}-a2"])


def test_a_job_that_ray_has_not_started_is_no_hang(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "PENDING")
    began = time.monotonic()

    def go_on(cluster: Cluster) -> None:
        if time.monotonic() - began > 0.3:
            cluster.jobs[f"{KEY}-a1"] = "RUNNING"

    cluster.on_ask = go_on
    result = runner(cluster, hang_timeout_s=0.1).run(made)
    assert result.outcome is Outcome.HANG and time.monotonic() - began > 0.3


def test_storage_that_is_away_longer_than_a_pool_may_be_loses_nothing(cluster: Cluster) -> None:
    told, began = Told(), time.monotonic()

    def away(cluster: Cluster) -> None:
        cluster.storage_down = LaunchError("storage s3://b does not answer")
        cluster.on_ask = back

    def back(cluster: Cluster) -> None:
        if cluster.jobs[f"{KEY}-a1"] == "RUNNING":
            cluster.jobs[f"{KEY}-a1"] = "SUCCEEDED"  # it ended meanwhile, and its result is not to be had yet
        if time.monotonic() - began > 0.5:
            cluster.storage_down = None
            cluster.finish(1)

    cluster.on_ask = at(4, away)
    result = runner(cluster, told, wait_s=10, lost_after_s=0.1, hang_timeout_s=0.2).run(trial(cluster))
    assert time.monotonic() - began > 0.5
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [f"{KEY}-a1"])
    assert [problem for problem, _ in told.said] == ["storage s3://b does not answer", None]


def test_nodes_that_were_taken_back_have_a_budget_of_their_own(cluster: Cluster) -> None:
    made = trial(cluster)

    def taken_back(cluster: Cluster) -> None:
        for launch in cluster.started:
            if cluster.jobs[launch] == "RUNNING":
                attempt = int(launch.rpartition("a")[2])
                result = TrialResult(
                    key=KEY, attempt=attempt, outcome=Outcome.INFRA, reason="preempted: x", started_at=1.0, finished_at=2.0
                )
                atomic_write(cluster.store.trial_dir(KEY) / "result.json", result.model_dump_json())
                cluster.jobs[launch] = "FAILED"

    cluster.on_ask = taken_back
    result = runner(cluster, retries=0, preemptions=3).run(made)
    assert (result.outcome, result.reason) == (Outcome.INFRA, "preempted: x")
    assert len(cluster.started) == 4


def test_a_pool_that_dies_under_a_trial(cluster: Cluster) -> None:
    def die(cluster: Cluster) -> None:
        with JournalWriter(cluster.store.trial_dir(KEY) / "journal.jsonl", 1) as journal:
            journal.append("step", step=1)
        cluster.down = LaunchError("pool p does not answer")

    cluster.on_ask = at(4, die)
    result = runner(cluster, wait_s=0.05, retries=2).run(trial(cluster))
    assert (result.outcome, result.reason) == (Outcome.INFRA, "not started: pool p does not answer (waited 0.05 s for the pool)")
    assert cluster.started == [f"{KEY}-a1"]


@pytest.mark.parametrize("stopped", [True, False])
def test_a_result_that_is_there_counts_although_its_process_still_runs(cluster: Cluster, stopped: bool) -> None:
    """A sweep that is stopped just then, and a process that hangs at its end, lose nothing."""
    made = trial(cluster)
    running = runner(cluster, hang_timeout_s=1000.0 if stopped else 0.1)

    def publish_and_stay(cluster: Cluster) -> None:
        if cluster.started and not cluster.store.result(KEY):
            cluster.finish(1)
            cluster.jobs[f"{KEY}-a1"] = "RUNNING"
            if stopped:
                running.stop.set()

    cluster.on_ask = publish_and_stay
    result = running.run(made)
    assert (result.outcome, result.attempt) == (Outcome.OK, 1)
    assert cluster.jobs == {f"{KEY}-a1": "STOPPED"}
