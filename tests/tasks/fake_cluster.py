"""A launcher without a cluster, and a clock that only moves where a trial's runner waits: hours pass in milliseconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster import launchers
from cluster.journal.lines import Record
from cluster.launchers import Launch, LaunchError, Status
from experiments.atomic_file import atomic_write
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep import follow_attempt, pool_watch, run_trial
from tasks.sweep.failure_policy import Policy
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.run_trial import TrialRunner
from tasks.sweep.store import SweepStore
from tests.contracts import make_trial

KEY = "dddd000000000001"
BEGAN = 1000.0  # the clock's first reading, s
POLL_S, ASK_AGAIN_S = 0.2, 3.0  # between two looks at a trial, and at a pool that is down


class Clock:
    """In place of the module `time`."""

    def __init__(self) -> None:
        self.now = BEGAN

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1.7e9 + self.now

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return self.now - BEGAN


class Stop(threading.Event):
    """An event that is waited for on a clock of its own."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "would wait for ever"
        if not self.is_set():
            self.clock.now = round(self.clock.now + timeout, 6)
        assert self.clock.passed < 5000, "the runner does not end"
        return self.is_set()


@dataclass
class Cluster:
    """A launcher whose jobs run in this dictionary. `down`: why it does not answer; `on_ask` is called before each answer."""

    store: SweepStore
    clock: Clock
    jobs: dict[str, str] = field(default_factory=dict)
    down: LaunchError | None = None
    storage_down: LaunchError | None = None
    asked: int = 0
    started: list[str] = field(default_factory=list)
    on_ask: Callable[[Cluster], object] = lambda cluster: None
    exit_code: int | None = None  # of a job that is over
    message: str | None = None
    start_timeout_s: float | None = None  # since the clock began; a job that is pending then is overdue
    launcher: str = "ray_job"
    calls: list[str] = field(default_factory=list)
    text: str = "log"

    def _ask(self, what: str) -> None:
        self.asked += 1
        self.calls.append(what)
        self.on_ask(self)
        if self.down:
            raise self.down

    def free_number(self, trial: Trial, trial_dir: Path, attempt: int) -> int:
        while self.jobs.get(f"{trial.key}-a{attempt}", "RUNNING") not in ("RUNNING", "PENDING"):
            attempt += 1
        return attempt

    def starting(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        return self._launch(trial.key, attempt).model_copy(update={"starting": True})

    def end_earlier(self, trial: Trial) -> None:
        """Nothing: a job's id has its attempt's number."""

    def start(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        self._ask("start")
        launch = self._launch(trial.key, attempt)
        self.jobs.setdefault(launch.id, "RUNNING")
        self.started.append(launch.id)
        return launch

    def status(self, launch: Launch) -> Status:
        self._ask("status")
        state = self.jobs.get(launch.id)
        running = state in ("RUNNING", "PENDING")
        message = self.message if state else "unknown job"
        pending = state == "PENDING"
        late = pending and self.start_timeout_s is not None and self.clock.passed > self.start_timeout_s
        return Status(
            running=running,
            pending=pending,
            overdue="no node had room" if late else None,
            exit_code=None if running else self.exit_code,
            message=None if running else message,
        )

    def fetch(self, launch: Launch, trial_dir: Path, *, last: bool = False) -> None:
        self._ask("fetch last" if last else "fetch")
        if self.storage_down:
            raise self.storage_down

    def close(self) -> None:
        pass

    def keep(self, launch: Launch, trial_dir: Path) -> None:
        self._ask("keep")

    def stop(self, launch: Launch, grace_s: float = 5.0) -> None:
        self._ask("stop")
        if launch.id in self.jobs:
            self.jobs[launch.id] = "STOPPED"

    def find_started(self, launch: Launch) -> Launch | None:
        self._ask("find started")
        return launch.model_copy(update={"starting": False}) if launch.id in self.jobs else None

    def find_lost(self, trial: Trial, trial_dir: Path, begun: Record) -> Launch:
        return self._launch(trial.key, begun["attempt"])

    def _launch(self, key: str, attempt: int) -> Launch:
        return Launch(launcher=self.launcher, key=key, attempt=attempt, id=f"{key}-a{attempt}")  # type: ignore[arg-type]

    def log(self, launch: Launch, trial_dir: Path) -> str:
        return self.text

    def finish(self, attempt: int, outcome: Outcome = Outcome.OK, reason: str | None = None) -> None:
        """The job publishes a result and ends. `reason`: why it did not end ok; of one that did, what disturbed it."""
        ok = outcome is Outcome.OK
        said, disturbed = (None, reason) if ok else (reason or "made up", None)
        result = TrialResult(key=KEY, attempt=attempt, outcome=outcome, reason=said, disturbed=disturbed, started_at=1.0, finished_at=2.0)
        atomic_write(self.store.trial_dir(KEY) / "result.json", result.model_dump_json())
        self.jobs[f"{KEY}-a{attempt}"] = "SUCCEEDED"

    def finish_all(self, *endings: tuple[Outcome, str] | Outcome) -> None:
        """Each attempt ends when it is next asked about: the n-th like the n-th ending, all others like the last."""

        def end(cluster: Cluster) -> None:
            for launch in cluster.started:
                if cluster.jobs[launch] == "RUNNING":
                    attempt = int(launch.rpartition("a")[2])
                    ending = endings[min(attempt, len(endings)) - 1]
                    cluster.finish(attempt, *(ending if isinstance(ending, tuple) else (ending,)))

        self.on_ask = end


@dataclass
class Told:
    """What was said about the pool."""

    said: list[tuple[str | None, float]] = field(default_factory=list)

    def __call__(self, pool: str, problem: str | None, left: float) -> None:
        self.said.append((problem, left))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    clock = Clock()
    for module in (follow_attempt, pool_watch, run_trial):
        monkeypatch.setattr(module, "time", clock)
    return Cluster(SweepStore("contract-20260101-000000-0000", tmp_path), clock)


def runner(
    cluster: Cluster, told: Told | None = None, observed: list[tuple[int, Sequence[Record]]] | None = None, **policy: float
) -> TrialRunner:
    """A runner whose waits move the cluster's clock. `policy`: also `wait_s` and `lost_after_s` of the pool, 60 s each."""
    watch = {name: policy.pop(name) for name in ("wait_s", "lost_after_s") if name in policy}
    pool = PoolWatch("p", **{"wait_s": 60.0, "lost_after_s": 60.0, **watch}, tell=told or Told())

    def observe(trial: Trial, attempt: int, records: Sequence[Record]) -> None:
        if observed is not None:
            observed.append((attempt, records))

    return TrialRunner(cluster.store, cluster, Policy(**policy), Stop(cluster.clock), observe, pool)  # type: ignore[arg-type]


def trial(cluster: Cluster) -> Trial:
    return make_trial(cluster.store.trial_dir(KEY), KEY)


def left_by_a_dead_flow(cluster: Cluster, state: str) -> Trial:
    """A trial whose first attempt another flow started."""
    made = trial(cluster)
    launch = cluster.start(made, cluster.store.trial_dir(KEY), 1)
    launchers.save(launch, cluster.store.trial_dir(KEY))
    cluster.jobs[launch.id] = state
    cluster.asked, cluster.started, cluster.calls = 0, [], []
    return made


def at(number: int, do: Callable[[Cluster], object]) -> Callable[[Cluster], object]:
    """Calls `do` when the launcher is asked for the n-th time."""
    return lambda cluster: do(cluster) if cluster.asked == number else None
