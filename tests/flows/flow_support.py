"""A session of the flow without Prefect, MLflow or a cluster."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster import launchers
from cluster.launchers import Launch, LaunchError, Status
from experiments.trial import Trial, TrialResult
from flows.runtime import session as flows_session
from flows.runtime import trial_records
from flows.runtime.progress import SweepProgress
from flows.runtime.session import Session
from tasks.sweep import pool_trials
from tasks.sweep.store import Plan
from tests.tasks.plan_support import saved

LOG = logging.getLogger("flow")


@dataclass
class FakeLauncher:
    """Notes what it is told to stop and to keep."""

    stopped: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    problem: LaunchError | None = None
    on_stop: Callable[[Launch], object] = lambda launch: None
    running: bool = True
    started: bool = True  # of an attempt that was starting: whether it is found

    def find_started(self, launch: Launch) -> Launch | None:
        if self.problem:
            raise self.problem
        return launch.model_copy(update={"id": "1", "starting": False}) if self.started else None

    def status(self, launch: Launch) -> Status:
        if self.problem:
            raise self.problem
        return Status(running=self.running)

    def stop(self, launch: Launch, grace_s: float = 5.0) -> None:
        if self.problem:
            raise self.problem
        self.stopped.append(launch.key)
        self.on_stop(launch)

    def close(self) -> None:
        pass

    def keep(self, launch: Launch, trial_dir: Path) -> None:
        if self.problem:
            raise self.problem
        self.kept.append(launch.key)


class FakePublisher:
    """In place of LivePublisher: what it was given."""

    def __init__(self, plan: Plan, logger: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def start(self) -> None:
        self.calls.append(("start",))

    def wait_until_loaded(self, stop: threading.Event) -> None:
        self.calls.append(("loaded",))

    def close(self) -> None:
        self.calls.append(("close",))

    def extend(self, plan: Plan) -> None:
        self.calls.append(("extend", [trial.key for trial in plan.trials]))

    def feed(self, trial: Trial, attempt: int, started_at: float, records: Sequence[Any]) -> None:
        self.calls.append(("feed", trial.key, attempt, started_at, len(records)))

    def finish(self, trial: Trial, result: TrialResult, folder: Path) -> None:
        self.calls.append(("finish", trial.key, result.outcome, folder))


class Artifacts:
    """In place of the module: Prefect is not asked for a picture."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.made.append(name)


@dataclass
class Runner:
    """In place of TrialRunner: gives `result` for each trial, and keeps what it was made of."""

    made: list[tuple[Any, ...]] = field(default_factory=list)
    result: Callable[[Trial], TrialResult] = lambda trial: pytest.fail("no trial was to run")
    meanwhile: AbstractContextManager[Any] = field(default_factory=nullcontext)

    def __call__(self, *arguments: Any) -> Any:
        self.made.append(arguments)
        return self

    def run(self, trial: Trial, begun: Any = None) -> TrialResult:
        with self.meanwhile:
            return self.result(trial)


@dataclass
class Stage:
    """Makes sessions, and holds all that they meet."""

    monkeypatch: pytest.MonkeyPatch
    launcher: FakeLauncher = field(default_factory=FakeLauncher)
    runner: Runner = field(default_factory=Runner)
    artifacts: Artifacts = field(default_factory=Artifacts)

    def __post_init__(self) -> None:
        self.monkeypatch.setattr(launchers, "for_pool", lambda pool: self.launcher)
        self.monkeypatch.setattr(flows_session, "LivePublisher", FakePublisher)
        self.monkeypatch.setattr(pool_trials, "TrialRunner", self.runner)
        self.monkeypatch.setattr(flows_session, "artifacts", self.artifacts)
        self.monkeypatch.setattr(trial_records, "artifacts", self.artifacts)

    def session(self, plan: Plan, pool_wait_s: float | None = None) -> Session:
        return Session(saved(plan), plan, SweepProgress(plan.trials), LOG, pool_wait_s)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def begun(plan: Plan, *numbers: int, attempt: int = 1) -> None:
    """These trials of a saved plan were started, and their ends are not known."""
    store = saved(plan)
    for number in numbers:
        trial = plan.trials[number - 1]
        launch = Launch(launcher="local", key=trial.key, attempt=attempt, id="1")
        launchers.save(launch, store.trial_dir(trial.key))


def calls(session: Session) -> list[tuple[Any, ...]]:
    """What the session told its publisher."""
    publisher: Any = session._publisher
    made: list[tuple[Any, ...]] = publisher.calls
    return made


def run_trial(session: Session, trial: Trial) -> TrialResult:
    """Run a trial as its task run does."""
    return session.pools[trial.pool].run(trial, LOG)
