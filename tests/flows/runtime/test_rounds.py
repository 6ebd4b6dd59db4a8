"""Rounds of a plan that grows, by the example of A/A pairs: in turns, until the time is over."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.trial import Outcome
from flows.runtime import rounds
from flows.runtime.rounds import run_rounds
from tasks.sweep.aa_plan import one_more_pair, plan_aa
from tasks.sweep.batch_search import SearchLimit
from tasks.sweep.store import DecideSettings, Plan, Request, SweepStore
from tests.tasks.plan_support import make_plan, make_result, make_trial


class Session:
    """In place of a session; a clock that only trials move: each takes `trial_s`."""

    def __init__(self, plan: Plan, monkeypatch: pytest.MonkeyPatch, trial_s: float, on_run: Callable[[Session], object]) -> None:
        self.plan, self.store = plan, SweepStore(plan.sweep_id)
        self.store.save_plan(plan)
        self.most: list[int | None] = []
        self.progress = SimpleNamespace(note="", set_growth=self.most.append)
        self.stopped, self.now, self.rounds = False, 1000.0, list[int]()
        self.stop = SimpleNamespace(is_set=lambda: self.stopped)
        self.deadline: Any = None
        self.waits = SimpleNamespace(seconds=0.0)
        self.searches = SearchLimit()
        self.ran_s: Any = None
        self._trial_s, self._on_run = trial_s, on_run
        monkeypatch.setattr(rounds, "run_trials", self.run)
        monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: self.now))

    def run(self, session: Any, *, in_turns: bool) -> None:
        assert session is self and in_turns
        for place, trial in enumerate(self.plan.trials):
            if self.store.result(trial.key) is None:
                self.now += self._trial_s
                began = 1.7e9 + 1000.0 * place  # one after the other
                self.store.save_result(make_result(trial, Outcome.OK, started_at=began, finished_at=began + self._trial_s))
        self.rounds.append(len(self.plan.trials))
        self._on_run(self)

    def extend(self, plan: Plan) -> None:
        self.store.save_plan(plan)
        self.plan = plan


def ran(monkeypatch: pytest.MonkeyPatch, trial_s: float, on_run: Callable[[Session], object] = lambda _: None, **options: Any) -> Session:
    session = Session(plan_aa(Request(suite="synthetic", profile="smoke"), **options), monkeypatch, trial_s, on_run)
    run_rounds(session, one_more_pair)  # type: ignore[arg-type]
    return session


def test_without_a_limit_all_pairs_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(monkeypatch, 100.0, pairs=3).rounds == [6]


def test_pairs_start_until_the_time_is_over_and_the_last_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ran(monkeypatch, 10.0, minutes=1)  # 20 s a pair: the third ends at 60 s
    assert session.rounds == [2, 4, 6]
    session = ran(monkeypatch, 9.9, minutes=1)  # at 59.4 s the fourth starts
    assert session.rounds == [2, 4, 6, 8]
    assert set(session.store.states(session.plan).values()) == {Outcome.OK}, "the sweep is complete"
    assert session.store.load_plan() == session.plan


def test_what_the_sweep_waited_for_others_is_none_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def waited(session: Session) -> None:
        session.now += 100.0
        session.waits.seconds += 100.0

    assert ran(monkeypatch, 10.0, waited, minutes=1).rounds == [2, 4, 6], "as many as without"


def test_no_more_pairs_run_than_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ran(monkeypatch, 1.0, minutes=60, pairs=2)
    assert session.rounds == [2, 4] and session.most == [4, 4], "so many trials at most"


def test_a_stop_starts_no_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ran(monkeypatch, 1.0, lambda session: setattr(session, "stopped", len(session.rounds) == 2), minutes=60)
    assert session.rounds == [2, 4]


def test_a_resumed_sweep_goes_on_where_its_time_was(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ran(monkeypatch, 10.0, lambda session: setattr(session, "stopped", len(session.rounds) == 2), minutes=1)
    again = Session(first.store.load_plan(), monkeypatch, 10.0, lambda _: None)
    run_rounds(again, one_more_pair)  # type: ignore[arg-type]
    assert again.rounds == [4, 6]
    over = Session(again.store.load_plan(), monkeypatch, 10.0, lambda _: None)
    run_rounds(over, one_more_pair)  # type: ignore[arg-type]
    assert over.rounds == [6], "nothing is left to do"


def test_a_deadline_leaves_no_more_of_the_budget_than_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan([make_trial(1)], decide=DecideSettings(budget_s=300.0))
    session = Session(plan, monkeypatch, 10.0, lambda _: None)
    session.store.save_result(make_result(plan.trials[0], Outcome.OK, finished_at=1.7e9))
    session.run = lambda session, *, in_turns: None  # type: ignore[method-assign, assignment]
    monkeypatch.setattr(rounds, "run_trials", session.run)
    asked: list[float] = []
    for left_s in (1000.0, 40.0, -5.0):
        session.deadline = SimpleNamespace(left_s=left_s)
        run_rounds(session, lambda store, plan, ran_s: asked.append(ran_s))  # type: ignore[arg-type, func-returns-value]
    assert asked == [0.0, 260.0, 305.0]


def test_after_a_round_that_the_deadline_cut_no_other_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of it is the next flow's, also where a round of the cells that ran would still fit."""
    asked: list[float] = []
    for ended, more in ((1, 0), (2, 1)):
        trials = [make_trial(1), make_trial(2)]
        plan = make_plan(trials, sweep_id=f"made-up-20260102-000000-000{ended}", decide=DecideSettings(budget_s=100.0))
        session = Session(plan, monkeypatch, 0.0, lambda _: None)
        monkeypatch.setattr(rounds, "run_trials", lambda session, *, in_turns: None)
        session.deadline = SimpleNamespace(left_s=50.0)
        for trial in trials[:ended]:
            session.store.save_result(make_result(trial, Outcome.OK))
        asked.clear()
        run_rounds(session, lambda store, plan, ran_s: asked.append(ran_s))  # type: ignore[arg-type, func-returns-value]
        assert len(asked) == more


def test_after_a_search_that_time_cut_off_no_round_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan([make_trial(1)], decide=DecideSettings(budget_s=100.0))
    session = Session(plan, monkeypatch, 0.0, lambda _: None)
    monkeypatch.setattr(rounds, "run_trials", lambda session, *, in_turns: session.searches.cut.add(plan.trials[0].key))
    run_rounds(session, lambda store, plan, ran_s: pytest.fail("it asks for another"))  # type: ignore[arg-type]


def test_for_how_long_trials_have_run_is_known_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan([make_trial(1)], decide=DecideSettings(budget_s=100.0))
    session = Session(plan, monkeypatch, 0.0, lambda _: None)
    session.store.save_result(make_result(plan.trials[0], Outcome.OK, started_at=0.0, finished_at=40.0))
    known: list[float] = []

    def run(session: Any, *, in_turns: bool) -> None:
        for now, waited in ((0.0, 0.0), (50.0, 20.0)):
            session.now, session.waits.seconds = 1000.0 + now, waited
            known.append(session.ran_s())

    monkeypatch.setattr(rounds, "run_trials", run)
    run_rounds(session, lambda store, plan, ran_s: None)  # type: ignore[arg-type]
    assert known == [40.0, 70.0], "with what ran in earlier flows, and without what it waited for others"
