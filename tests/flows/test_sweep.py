"""The flow's own decisions: what it plans, draws, says at its end, and passes on."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.client.schemas.objects import StateType

from experiments.trial import Outcome
from flows import sweep as flows_sweep
from flows.runtime.progress import SweepProgress
from flows.runtime.session import Session as RealSession
from flows.sweep import finish, load_or_plan, sweep
from tasks.rounds import budget as rounds_budget
from tasks.sweep.aa_plan import one_more_pair
from tasks.sweep.batch_search import SearchLimit
from tasks.sweep.store import AaSettings, DecideSettings, Plan, Request, SweepBusy, SweepStore
from tests.flows.flow_support import LOG, Stage, stage
from tests.tasks.plan_support import SWEEP_ID, make_plan, make_result, make_trial, saved

__all__ = ["stage"]  # a fixture


class Session:
    """In place of a session, over a saved plan."""

    def __init__(self, plan: Plan, problem: str | None = None, **ended: Outcome) -> None:
        self.plan, self.store, self.progress, self.problem = plan, saved(plan, **ended), SweepProgress(plan.trials), problem
        self.stop, self.found, self.log = threading.Event(), "", logging.getLogger("flow")
        self.given_up: str | None = None
        self.waited: str | None = None
        self.searched: str | None = None

    def publish_and_report(self) -> str | None:
        return self.problem

    end = RealSession.end


def made(problem: str | None = None, **ended: Outcome) -> Any:
    return Session(make_plan([make_trial(1), make_trial(2)]), problem, **ended)


# --- the end


@pytest.mark.parametrize(("decide", "stopped", "status"), [(True, True, 1), (True, False, 0), (False, True, 0)])
def test_a_sweep_that_was_stopped_between_two_rounds_is_incomplete(decide: bool, stopped: bool, status: int) -> None:
    """All trials of its plan have ended then."""
    session = made(t1=Outcome.OK, t2=Outcome.OK)
    session.plan = session.plan.model_copy(update={"decide": DecideSettings(budget_s=60.0) if decide else None})
    if stopped:
        session.stop.set()
    finish(session, None)
    assert session.store.load_status().status == status


def test_what_it_waited_for_others_is_told_at_the_end() -> None:
    session = made(t1=Outcome.OK, t2=Outcome.OK)
    session.waited = "it waited 3m for slots that others held, which does not count as its time"
    finish(session, None)
    assert session.store.load_status().message.endswith("(2 ok); it waited 3m for slots that others held, which does not count as its time")


@pytest.mark.parametrize("decide", [True, False])
@pytest.mark.parametrize(
    ("second", "status", "text"),
    [
        (Outcome.CRASHED, 2, "some trials failed (2 crashed)"),
        (Outcome.CANCELLED, 1, "the sweep is incomplete (1 cancelled, 1 crashed)"),
        (None, 1, "the sweep is incomplete (1 crashed, 1 not run)"),
    ],
)
def test_first_trials_that_fail_alike_make_it_incomplete_only_where_others_did_not_run(
    decide: bool, second: Outcome | None, status: int, text: str
) -> None:
    session = made(t1=Outcome.CRASHED, **({"t2": second} if second else {}))
    session.plan = session.plan.model_copy(update={"decide": DecideSettings(budget_s=60.0) if decide else None})
    session.stop.set()
    session.given_up = "stopped: the first 2 trials, of 2 cells, all ended as crashed (why); mend that and resume the sweep"
    finish(session, None)
    kept = session.store.load_status()
    assert (kept.status, kept.message) == (status, f"{SWEEP_ID}: {text}; {session.given_up}")


@pytest.mark.parametrize(
    ("second", "status", "text"),
    [
        (Outcome.OK, 0, "every trial ended as expected (2 ok)"),
        (Outcome.UNSUPPORTED, 0, "every trial ended as expected (1 ok, 1 unsupported)"),
        (Outcome.CRASHED, 2, "some trials failed (1 crashed, 1 ok)"),
        (Outcome.CANCELLED, 1, "the sweep is incomplete (1 cancelled, 1 ok)"),
        (None, 1, "the sweep is incomplete (1 not run, 1 ok)"),
    ],
)
def test_how_a_sweep_went(second: Outcome | None, status: int, text: str) -> None:
    session = made(t1=Outcome.OK, **({"t2": second} if second else {}))
    state = finish(session, None)
    message = f"{SWEEP_ID}: {text}"
    assert (state.type, state.message) == (StateType.COMPLETED if status == 0 else StateType.FAILED, message)
    kept = session.store.load_status()
    assert (kept.status, kept.message, session.progress.note, session.progress.ended) == (status, message, message, (status, message))


def test_what_there_was_no_time_for_is_counted() -> None:
    session = made(t1=Outcome.OK, t2=Outcome.OK)
    session.plan = session.plan.model_copy(update={"cut": [make_trial(3), make_trial(4)]})
    finish(session, None)
    said = "every trial that began ended as expected (2 not begun for want of time, 2 ok)"
    found = session.store.load_status()
    assert (found.status, found.message) == (0, f"{SWEEP_ID}: {said}")


def test_a_search_that_time_cut_off_is_told_and_is_none_that_was_not_begun() -> None:
    session = made(t1=Outcome.OK, t2=Outcome.OK)
    session.plan = session.plan.model_copy(update={"cut": [make_trial(3)]})
    session.searched = "no time was left to search"
    finish(session, None)
    said = "every trial that measured ended as expected (1 not measured for want of time, 2 ok); no time was left to search"
    assert session.store.load_status().message == f"{SWEEP_ID}: {said}"


def test_the_flow_run_ends_with_what_was_found_and_where_the_report_is(caplog: pytest.LogCaptureFixture) -> None:
    """`prefect deployment run --watch` shows the log and the state; the sweep's own status stays short."""
    session = made(t1=Outcome.OK, t2=Outcome.OK)
    session.found = "MP-1 is fastest (sweep s). Report: /runs/s/report.html"
    with caplog.at_level(logging.INFO):
        state = finish(session, None)
    short = f"{SWEEP_ID}: every trial ended as expected (2 ok)"
    assert state.message == f"{short}. {session.found}" == caplog.messages[-1]
    assert session.store.load_status().message == short == session.progress.note


def test_what_could_not_be_published_fails_the_flow_and_makes_no_trial_one_that_did_not_end() -> None:
    session = made("not all is in MLflow", t1=Outcome.OK, t2=Outcome.OK)
    state = finish(session, None)
    assert state.type is StateType.FAILED
    assert state.message == f"{SWEEP_ID}: every trial ended as expected (2 ok); not all is in MLflow"
    assert session.store.load_status().status == 1


def test_what_interrupted_it_is_passed_on_after_all_is_kept() -> None:
    session = made(t1=Outcome.OK, t2=Outcome.OK)
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught:
        finish(session, error)
    assert caught.value is error
    assert session.store.load_status().status == 1


# --- its work


def test_data_sets_are_drawn_before_the_trials_run(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, Any]] = []
    monkeypatch.setattr(flows_sweep, "make_datasets", lambda session: done.append(("draw", session)))
    monkeypatch.setattr(flows_sweep, "run_trials", lambda session: done.append(("run", session)))
    monkeypatch.setattr(flows_sweep, "run_rounds", lambda session, more: done.append((more, session)))
    session: Any = SimpleNamespace(plan=make_plan([make_trial(1)]), deadline=None, searches=SearchLimit())
    flows_sweep._work(session)
    assert done == [("draw", session), ("run", session)]
    pairs: Any = SimpleNamespace(plan=make_plan([make_trial(1)], aa=AaSettings(pairs=1)), deadline=None, searches=SearchLimit())
    flows_sweep._work(pairs)
    assert done[2:] == [("draw", pairs), (one_more_pair, pairs)]


@pytest.mark.parametrize(
    ("deadline", "searches", "stopped", "cuts"),
    [(None, (), False, False), (40.0, (), False, True), (None, ("a",), False, True), (None, ("a",), True, False)],
)
def test_what_there_was_no_time_for_is_cut_whatever_limited_it(
    monkeypatch: pytest.MonkeyPatch, deadline: float | None, searches: tuple[str, ...], stopped: bool, cuts: bool
) -> None:
    """A suite's rounds have a budget and no deadline, and time may end searches there."""
    done: list[str] = []
    for name in ("make_datasets", "run_trials"):
        monkeypatch.setattr(flows_sweep, name, lambda session: None)
    stop = threading.Event()
    if stopped:
        stop.set()
    session: Any = SimpleNamespace(plan=make_plan([make_trial(1)]), deadline=deadline, searches=SearchLimit(cut={*searches}), stop=stop)
    session.cut = lambda: done.append("cut")
    flows_sweep._work(session)
    assert done == ["cut"] * cuts


# --- its plan


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was asked of the planner."""
    asked: list[Any] = []

    def plan(request: Request, sweep_id: str, *, say: object) -> tuple[Plan, None]:
        asked.append(("plan", request, sweep_id))
        return make_plan([make_trial(1)], sweep_id=sweep_id), None

    def renew(plan: Plan, *, say: object) -> Plan:
        asked.append(("renew", plan.sweep_id))
        return plan.model_copy(update={"command": "renewed"})

    monkeypatch.setattr(flows_sweep, "make_plan", plan)
    monkeypatch.setattr(rounds_budget, "renew", renew)
    monkeypatch.setattr(flows_sweep, "check_ready", lambda plan: asked.append("check"))
    return asked


def test_a_new_sweep_is_planned_and_checked_and_its_plan_kept(planner: list[Any]) -> None:
    store, request = SweepStore(SWEEP_ID), Request(suite="made_up")
    plan = load_or_plan(store, request)
    assert planner == [("plan", request, SWEEP_ID), "check"]
    assert store.load_plan() == plan


def test_a_sweep_that_is_there_is_renewed_and_what_changed_is_kept(planner: list[Any]) -> None:
    store = saved(make_plan([make_trial(1)]))
    plan = load_or_plan(store, Request(suite="another"))
    assert planner == [("renew", SWEEP_ID)]
    assert plan.command == "renewed" and store.load_plan() == plan


def test_a_plan_that_lacks_a_value_is_not_kept(planner: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(plan: Plan) -> None:
        raise ValueError("dataset is not set")

    monkeypatch.setattr(flows_sweep, "check_ready", lacks)
    with pytest.raises(ValueError, match="dataset"):
        load_or_plan(SweepStore(SWEEP_ID), Request(suite="made_up"))
    assert not SweepStore(SWEEP_ID).exists()


# --- all of it


@pytest.fixture
def whole(stage: Stage, planner: list[Any], monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The flow's function with nothing of Prefect around it; what it does is in `log`."""
    log: list[Any] = []
    monkeypatch.setattr(flows_sweep, "get_run_logger", lambda: LOG)
    monkeypatch.setattr(flows_sweep, "flow_run", SimpleNamespace(id="run-1"))
    runs = SimpleNamespace(
        reconcile=lambda store, logger: log.append(("reconcile", store.flow_runs())),
        rename=lambda run_id, name, logger: log.append(("rename", run_id, name)),
    )
    monkeypatch.setattr(flows_sweep, "prefect_runs", runs)
    told = SimpleNamespace(log=log, planner=planner, session=None)

    def work(session: Any) -> None:
        assert session.store.is_held()
        told.session = session
        for trial in session.plan.trials:
            session.store.save_result(make_result(trial))

    monkeypatch.setattr(flows_sweep, "run_trials", work)
    monkeypatch.setattr(flows_sweep.Session, "publish_and_report", lambda session: None)
    return told


def test_a_flow_holds_its_sweep_and_plans_what_it_was_asked_for(whole: SimpleNamespace) -> None:
    state = sweep.fn(
        "made_up",
        profile="smoke",
        pools=["cpu"],
        set={"steps": 5},
        only={"precision": ["bf16"]},
        repeats=3,
        sweep_id=SWEEP_ID,
        pool_wait_s=7.0,
    )
    assert (state.type, state.message) == (StateType.COMPLETED, f"{SWEEP_ID}: every trial ended as expected (1 ok)")
    request = Request(
        suite="made_up", profile="smoke", pools=["cpu"], set={"steps": 5}, only={"precision": ["bf16"]}, repeats=3, pool_wait_s=7.0
    )
    assert whole.planner == [("plan", request, SWEEP_ID), "check"]
    assert whole.log == [("reconcile", []), ("rename", "run-1", SWEEP_ID)]  # of the flow runs before this one
    store = SweepStore(SWEEP_ID)
    assert store.flow_runs() == ["run-1"] and not store.is_held()
    assert list(whole.session.progress.rows) == [trial.key for trial in store.load_plan().trials]
    assert {pool.watch.wait_s for pool in whole.session.pools.values()} == {7.0}


@pytest.mark.parametrize("suite", ["made_up", "/a/folder/made_up.yaml", "made_up.yml"])
def test_a_sweep_without_an_id_is_named_after_its_suite(whole: SimpleNamespace, suite: str) -> None:
    sweep.fn(suite)
    assert whole.session.store.sweep_id.startswith("made_up-20")
    request = whole.planner[0][1]
    assert request == Request(suite=suite)


def test_a_sweep_that_another_holds_is_left_alone(whole: SimpleNamespace) -> None:
    with SweepStore(SWEEP_ID).lease(), pytest.raises(SweepBusy):
        sweep.fn("made_up", sweep_id=SWEEP_ID)
    assert whole.planner == [] and whole.log == []


def test_the_progress_of_the_terminal_is_used_where_there_is_one(whole: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = SweepProgress()
    monkeypatch.setattr(flows_sweep, "CURRENT", SimpleNamespace(get=lambda: progress))
    sweep.fn("made_up")
    assert whole.session.progress is progress and len(progress.rows) == 1
