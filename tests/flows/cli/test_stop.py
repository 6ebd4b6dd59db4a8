"""`sweep stop` beside a process that lives, and in place of one that died."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from cluster import launchers
from cluster.launchers import Launch, LaunchError
from experiments.trial import Outcome
from flows.cli import stop
from flows.cli.stop import stop_sweep
from tasks.sweep.store import Plan, SweepStore
from tasks.tracking import projection
from tests.flows.flow_support import FakeLauncher, begun
from tests.tasks.plan_support import SWEEP_ID, make_plan, make_result, make_trial, saved


@dataclass
class Clock:
    """In place of the module `time`; `on_sleep` is called at each look."""

    now: float = 50.0
    slept: int = 0
    on_sleep: Callable[[Clock], object] = lambda clock: None

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1.7e9 + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += 1
        assert self.slept < 10_000, "it waits for ever"
        self.on_sleep(self)


@dataclass
class Stage:
    """What a stop meets."""

    clock: Clock = field(default_factory=Clock)
    launcher: FakeLauncher = field(default_factory=FakeLauncher)
    published: list[tuple[Any, ...]] = field(default_factory=list)
    out: StringIO = field(default_factory=StringIO)

    def stop(self, reason: str = "enough") -> int:
        return stop_sweep(SweepStore(SWEEP_ID), reason, Console(file=self.out, width=200))

    @property
    def text(self) -> str:
        return self.out.getvalue().strip()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage()
    monkeypatch.setattr(stop, "time", made.clock)
    monkeypatch.setattr(launchers, "for_pool", lambda pool: made.launcher)
    monkeypatch.setattr(stop, "prepare_environment", lambda: None)
    monkeypatch.setattr(
        projection, "publish_sweep", lambda store, plan, files, reason, *, wait_s: made.published.append((store.sweep_id, files, reason))
    )
    return made


def plan_of_four() -> Plan:
    """One done, two begun, one waiting."""
    plan = make_plan([make_trial(number) for number in range(1, 5)])
    begun(plan, 1, 2, attempt=3)
    begun(plan, 3)
    saved(plan, t1=Outcome.OK)
    return plan


# --- its process lives


def test_a_live_process_is_asked_and_waited_for(stage: Stage) -> None:
    plan = plan_of_four()
    store = SweepStore(SWEEP_ID)
    with ExitStack() as holder:
        holder.enter_context(store.lease())

        def obey(clock: Clock) -> None:
            if clock.slept == 5:
                assert store.stop_reason() == "enough"
                store.save_status(1, "it was stopped: 1 cancelled")
                holder.close()

        stage.clock.on_sleep = obey
        assert stage.stop() == 0
    assert stage.clock.slept == 5
    assert stage.text.splitlines() == [f"asked the process that runs {SWEEP_ID} to stop ...", "it was stopped: 1 cancelled"]
    assert stage.launcher.stopped == [] and stage.published == []  # it does so itself
    assert store.result(plan.trials[1].key) is None


def test_a_live_process_that_says_nothing_is_stopped_too(stage: Stage) -> None:
    saved(make_plan([make_trial(1)]))
    with ExitStack() as holder:
        holder.enter_context(SweepStore(SWEEP_ID).lease())
        stage.clock.on_sleep = lambda clock: holder.close()
        assert stage.stop() == 0
    assert stage.text.splitlines()[-1] == f"{SWEEP_ID} is stopped"


def test_how_an_earlier_flow_ended_is_not_told_of_this_one(stage: Stage) -> None:
    saved(make_plan([make_trial(1)]))
    with ExitStack() as holder:
        holder.enter_context(SweepStore(SWEEP_ID).lease())
        SweepStore(SWEEP_ID).save_status(0, "done: 1 ok")
        stage.clock.on_sleep = lambda clock: holder.close()
        assert stage.stop() == 0
    assert stage.text.splitlines()[-1] == f"{SWEEP_ID} is stopped"


def test_a_live_process_that_does_not_obey_is_waited_for_two_minutes(stage: Stage) -> None:
    plan_of_four()
    with SweepStore(SWEEP_ID).lease():
        assert stage.stop() == 1
    assert 120 < stage.clock.now - 50 <= 120.4
    assert stage.text.splitlines()[-1] == "it still runs after 120 s; its trials end as soon as it looks"
    assert stage.launcher.stopped == []


# --- its process is dead


def test_what_a_dead_process_left_is_stopped_recorded_and_published(stage: Stage) -> None:
    plan = plan_of_four()
    store = SweepStore(SWEEP_ID)
    assert stage.stop() == 0
    assert stage.launcher.stopped == [plan.trials[1].key, plan.trials[2].key]
    results = [store.result(trial.key) for trial in plan.trials]
    assert [(result.outcome, result.attempt, result.reason) if result else None for result in results] == [
        (Outcome.OK, 1, None),
        (Outcome.CANCELLED, 3, "enough"),
        (Outcome.CANCELLED, 1, "enough"),
        None,
    ]
    assert results[1] is not None and results[1].started_at == results[1].finished_at == 1.7e9 + 50
    assert stage.published == [(SWEEP_ID, [], "enough")]
    assert stage.text == f"{SWEEP_ID}: its process was dead; stopped 2 trial(s) that it had left running"
    assert store.stop_reason() == "enough" and not store.is_held()


@pytest.mark.parametrize("said", list(Outcome))
def test_what_a_trial_says_while_it_is_stopped_counts_unless_the_stop_is_what_it_says(stage: Stage, said: Outcome) -> None:
    plan = make_plan([make_trial(1)])
    begun(plan, 1)
    store = SweepStore(SWEEP_ID)
    stage.launcher.on_stop = lambda launch: store.save_result(make_result(plan.trials[0], said))
    assert stage.stop() == 0
    result = store.result(plan.trials[0].key)
    by_the_stop = said in ("crashed", "infra", "cancelled")
    assert result is not None and result.outcome is (Outcome.CANCELLED if by_the_stop else said)
    assert (result.reason == "enough") == by_the_stop
    assert len(stage.published) == 1


@pytest.mark.parametrize("said", [None, Outcome.CANCELLED, Outcome.OK])
def test_a_disturbed_trial_that_was_measured_again_is_stopped_and_keeps_its_result(stage: Stage, said: Outcome | None) -> None:
    plan = make_plan([make_trial(1)])
    begun(plan, 1, attempt=2)
    [trial], store = plan.trials, SweepStore(SWEEP_ID)
    launch = launchers.load(store.trial_dir(trial.key))
    assert launch is not None
    first = make_result(trial, Outcome.OK).model_copy(update={"disturbed": "other work"})
    launchers.save(launch.model_copy(update={"replaces": first}), store.trial_dir(trial.key))
    store.save_result(first)
    second = make_result(trial, said or Outcome.OK, attempt=2)
    stage.launcher.on_stop = lambda launch: store.save_result(second) if said else None
    assert stage.stop() == 0 and stage.launcher.stopped == [trial.key]
    assert store.result(trial.key) == (second if said is Outcome.OK else first)
    assert stage.text == f"{SWEEP_ID}: its process was dead; stopped 1 trial(s) that it had left running"
    assert stage.stop() == 0 and stage.text.splitlines()[-1] == f"{SWEEP_ID} is not running"


@pytest.mark.parametrize("ended", [Outcome.INFRA, Outcome.CANCELLED])
def test_an_attempt_that_runs_after_an_earlier_one_has_its_result_is_stopped(stage: Stage, ended: Outcome) -> None:
    """A retry, say, whose flow was killed: result.json still has how the attempt before it ended."""
    begun(plan := make_plan([make_trial(1)]), 1, attempt=2)
    store = saved(plan, t1=ended)
    assert stage.stop() == 0 and stage.launcher.stopped == [plan.trials[0].key]
    result = store.result(plan.trials[0].key)
    assert result is not None and (result.outcome, result.attempt, result.reason) == (Outcome.CANCELLED, 2, "enough")


@pytest.mark.parametrize(
    ("ended", "running", "stopped"),
    [(Outcome.INFRA, True, True), (Outcome.INFRA, False, False), (Outcome.CANCELLED, True, False), (Outcome.CRASHED, True, False)],
)
def test_an_attempt_that_was_given_up_is_stopped_if_it_runs(stage: Stage, ended: Outcome, running: bool, stopped: bool) -> None:
    """Its pool did not answer any more, and the result is that of the flow, which then was killed."""
    begun(plan := make_plan([make_trial(1)]), 1)
    store, stage.launcher.running = saved(plan, t1=ended), running
    assert stage.stop() == 0 and stage.launcher.stopped == [plan.trials[0].key] * stopped
    result = store.result(plan.trials[0].key)
    assert result is not None and (result.outcome, result.reason) == ((Outcome.CANCELLED, "enough") if stopped else (ended, "made up"))


def test_a_trial_that_cannot_be_stopped_is_named_and_the_others_are_stopped(stage: Stage) -> None:
    plan = plan_of_four()

    def refuse(launch: Launch) -> None:
        if launch.key == plan.trials[1].key:
            raise LaunchError("pool cpu does not answer")

    stage.launcher.on_stop = refuse
    assert stage.stop() == 1
    assert stage.text.splitlines() == [
        f"{plan.trials[1].name} cannot be stopped: pool cpu does not answer",
        f"{SWEEP_ID}: its process was dead; stopped 1 trial(s) that it had left running",
    ]
    assert SweepStore(SWEEP_ID).result(plan.trials[1].key) is None


def test_a_sweep_of_which_nothing_can_be_stopped_is_not_stopped(stage: Stage) -> None:
    begun(plan := make_plan([make_trial(1)]), 1)

    def refuse(launch: Launch) -> None:
        raise LaunchError("pool cpu does not answer")

    stage.launcher.on_stop = refuse
    assert stage.stop() == 1
    assert stage.text == f"{plan.trials[0].name} cannot be stopped: pool cpu does not answer" and stage.published == []


def test_a_trial_that_never_began_needs_no_pool(stage: Stage) -> None:
    """Its pool may be gone from the pools file meanwhile."""
    plan = make_plan([make_trial(1), make_trial(2, pool="gone")])
    begun(plan, 1)
    saved(plan)
    assert stage.stop() == 0
    assert stage.text == f"{SWEEP_ID}: its process was dead; stopped 1 trial(s) that it had left running"


def test_a_sweep_that_left_nothing_is_not_running(stage: Stage) -> None:
    plan = make_plan([make_trial(1), make_trial(2)])
    begun(plan, 1)
    saved(plan, t1=Outcome.OK)
    assert stage.stop() == 0
    assert stage.text == f"{SWEEP_ID} is not running"
    assert stage.launcher.stopped == [] and stage.published == []


@pytest.mark.parametrize("damage", ["{", "\x00", "{}"])
def test_a_launch_that_cannot_be_read_is_named_and_the_others_are_stopped(stage: Stage, damage: str) -> None:
    plan = make_plan([make_trial(1), make_trial(2)])
    begun(plan, 1, 2)
    path = saved(plan).trial_dir(plan.trials[0].key) / "launch.json"
    path.write_text(damage)
    assert stage.stop() == 1
    assert f"{path}" in stage.text and "cannot be stopped: " in stage.text
    assert stage.launcher.stopped == [plan.trials[1].key]


def test_mlflow_that_cannot_be_written_does_not_hide_that_the_trials_were_stopped(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan([make_trial(1)])
    begun(plan, 1)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("file is not a database\n(Background on this error)")

    monkeypatch.setattr(projection, "publish_sweep", fail)
    assert stage.stop() == 1
    assert "stopped 1 trial(s) that it had left running" in stage.text
    assert f"MLflow was not told: file is not a database; `sweep resume {SWEEP_ID}` tells it once it can be written" in stage.text
    assert (result := saved(plan).result(plan.trials[0].key)) is not None and result.outcome is Outcome.CANCELLED
