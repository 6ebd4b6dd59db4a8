"""A flow that is told to stop: its trials end first, and their ends are recorded."""

from __future__ import annotations

import os
import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.exceptions import TerminationSignal

from cluster.launchers import LaunchError, processes
from experiments.trial import Outcome, Trial, TrialResult
from flows.runtime import interrupts, stopping
from flows.runtime.interrupts import heeded
from flows.runtime.stopping import stop_trials, until_stopped
from tests.flows.flow_support import Stage, begun, calls, run_trial, stage
from tests.tasks.plan_support import make_plan, make_result, make_trial

__all__ = ["stage"]  # a fixture


class Gate(threading.Condition):
    """Opens once somebody waits for the trials' ends."""

    def __init__(self) -> None:
        super().__init__()
        self.opened, self.timeout = threading.Event(), 0.0

    def wait_for(self, predicate: Any, timeout: float | None = None) -> bool:
        assert not predicate(), "nothing is at work"
        self.timeout = timeout or 0.0
        self.opened.set()
        return super().wait_for(predicate, timeout=60)


def test_a_stop_waits_until_each_trial_has_recorded_its_end(stage: Stage) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial]))
    session.stop._trial_ended = gate = Gate()
    at_work = threading.Event()

    def run(trial: Trial) -> TrialResult:
        at_work.set()
        session.stop.event.wait()
        gate.opened.wait()
        return make_result(trial, Outcome.CANCELLED)

    stage.runner.result = run
    thread = threading.Thread(target=run_trial, args=(session, trial))
    thread.start()
    try:
        at_work.wait()
        stop_trials(session, "enough")
        assert [call[:3] for call in calls(session)] == [("finish", trial.key, Outcome.CANCELLED)]
        assert session.stop._running == 0
    finally:
        session.stop.event.set()
        gate.opened.set()
        thread.join()
    assert session.store.stop_reason() == "enough"
    assert 0 < gate.timeout < 30  # after which Prefect kills a cancelled flow


def test_a_trial_that_fails_badly_runs_no_more(stage: Stage) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial]))

    def fail(trial: Trial) -> TrialResult:
        assert session.stop._running == 1
        raise ZeroDivisionError

    stage.runner.result = fail
    with pytest.raises(ZeroDivisionError):
        run_trial(session, trial)
    assert session.stop._running == 0


def test_a_stop_ends_what_nobody_follows_and_keeps_the_first_reason(stage: Stage) -> None:
    plan = make_plan([make_trial(1), make_trial(2), make_trial(3)])
    session = stage.session(plan)
    begun(plan, 1, 2)
    session.store.save_result(make_result(plan.trials[0]))
    session.store.request_stop("first")
    stop_trials(session, "second")
    assert session.store.stop_reason() == "first" and session.stop.is_set()
    assert stage.launcher.stopped == [plan.trials[1].key]
    stage.launcher.problem = LaunchError("pool p does not answer")
    stop_trials(session, "third")  # is no reason to fail
    (session.store.trial_dir(plan.trials[1].key) / "launch.json").write_text("{")
    stage.launcher.problem = None
    begun(plan, 3)
    stage.launcher.stopped.clear()
    stop_trials(session, "fourth")  # nor is a damaged file, which keeps no other trial running
    assert stage.launcher.stopped == [plan.trials[2].key]


@pytest.mark.parametrize(("ended", "attempt", "stopped"), [(Outcome.INFRA, 1, True), (Outcome.INFRA, 2, False), (Outcome.OK, 1, False)])
def test_a_stop_ends_a_retry_that_a_dead_flow_left_and_nobody_follows_yet(
    stage: Stage, ended: Outcome, attempt: int, stopped: bool
) -> None:
    """result.json has how the attempt before it ended."""
    plan = make_plan([make_trial(1)])
    session = stage.session(plan)
    begun(plan, 1, attempt=2)
    session.store.save_result(make_result(plan.trials[0], ended, attempt=attempt))
    stop_trials(session, "enough")
    assert stage.launcher.stopped == [plan.trials[0].key] * stopped


@pytest.fixture
def stops(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A session whose watcher of the stop file reports when it began and when it ended, with the reasons of its stops."""
    made = SimpleNamespace(session=stage.session(make_plan([make_trial(1)])), reasons=[], watching=threading.Event(), watched=False)

    def watch(ended: threading.Event) -> None:
        made.watching.set()
        ended.wait()
        made.watched = True

    monkeypatch.setattr(made.session.stop, "watch_file", watch)
    monkeypatch.setattr(stopping, "stop_trials", lambda session, reason: made.reasons.append((session is made.session, reason)))
    return made


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_no_other_signal_breaks_a_stop_off(stops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """Within a flow Prefect's handler of SIGTERM raises: in the midst of a stop it once gave the pool back under running trials."""

    def of_prefect(number: int, frame: object) -> None:
        raise TerminationSignal(signal=number)

    before = signal.signal(number, of_prefect)
    try:
        stopped: list[str] = []
        monkeypatch.setattr(stopping, "stop_trials", lambda session, reason: (os.kill(os.getpid(), number), stopped.append(reason)))
        assert until_stopped(stops.session, lambda: 1 // 0) is not None  # type: ignore[arg-type, return-value]
        assert len(stopped) == 1
        with pytest.raises(TerminationSignal):
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)


def test_a_ctrl_c_while_trials_are_stopped_kills_them(stops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[str] = []
    monkeypatch.setattr(interrupts.os, "_exit", lambda status: killed.append(f"status {status}"))
    monkeypatch.setattr(processes, "end_all", lambda key: killed.append(key) or 1)
    monkeypatch.setattr(stopping, "stop_trials", lambda session, reason: os.kill(os.getpid(), signal.SIGINT))
    trial = make_trial(1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has commands in its background ignore it
    try:
        with heeded(lambda: [trial], "sweep resume x"):
            until_stopped(stops.session, lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    finally:
        signal.signal(signal.SIGINT, before)
    assert killed == [trial.key, "status 1"]


def test_work_that_is_done_stops_nothing(stops: SimpleNamespace) -> None:
    done: list[bool] = []
    assert until_stopped(stops.session, lambda: done.append(stops.watching.wait(60))) is None
    assert done == [True] and stops.reasons == [] and stops.watched


@pytest.mark.parametrize("cancelled", [True, False])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyboardInterrupt(), "interrupted (Ctrl-C)"),
        (ValueError("a bug"), "the sweep failed: ValueError: a bug"),
        (TerminationSignal(signal=15), None),
    ],
)
def test_whatever_ends_the_work_stops_the_trials_first_and_is_given_back(
    stops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, error: BaseException, reason: str | None, cancelled: bool
) -> None:
    monkeypatch.setattr(stopping, "flow_run", SimpleNamespace(id="run-1"))
    monkeypatch.setattr(stopping.prefect_runs, "being_cancelled", lambda run_id: cancelled and run_id == "run-1")

    def work() -> None:
        raise error

    assert until_stopped(stops.session, work) is error
    by_signal = "cancelled in Prefect" if cancelled else f"process {os.getpid()} was told to end (SIGTERM)"
    assert stops.reasons == [(True, reason or by_signal)] and stops.watched
