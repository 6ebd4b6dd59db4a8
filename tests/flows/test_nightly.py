"""The flow of a night without Prefect, MLflow or trials: what a start finds of its date, and what it does of the rest."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.config.errors import ConfigError
from flows import nightly as module
from tasks.nightly import night_run, prefect_tasks
from tasks.nightly.close import close_night
from tasks.nightly.history import History
from tasks.nightly.night_run import NightRun
from tasks.nightly.notify import NotifyError
from tasks.nightly.repeats import more_pairs
from tasks.nightly.store import NightStore
from tasks.sweep.store import Plan, SweepStore
from tests.cli_support import ROOT
from tests.tasks.nightly.night_support import TONIGHT
from tests.tasks.nightly.pair_support import BAD, CELL, measured_with, paired_run

BLOCKS = ["slack-webhook/team", "webhook/board"]
LOG = logging.getLogger("night")


class Killed(BaseException):
    """In place of SIGKILL: nothing catches it."""


class FakeSession:
    """Publishes nothing, and notes how the flow ended."""

    ended: list[tuple[int, str]]
    waited: str | None = None

    def __init__(self, store: SweepStore, plan: Plan, progress: object, log: logging.Logger) -> None:
        self.store, self.plan, self.log, self.stop = store, plan, log, SimpleNamespace(is_set=lambda: False)
        self.waits = SimpleNamespace(seconds=0.0)

    def publish_and_report(self) -> None:
        return None

    def end(self, status: int, message: str) -> None:
        self.ended.append((status, message))


class Outside:
    """What the flow says to others."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.events: list[str] = []
        self.published: list[str] = []
        self.refused: dict[str, BaseException] = {}
        self.measured = 0

    def send(self, name: str, subject: str, body: str) -> None:
        if name in self.refused:
            raise self.refused[name]
        self.sent.append(f"{name}: {subject.split(':', maxsplit=1)[0]}")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outside:
    """Runs and suites of the test's own; all that leaves the process is noted instead."""
    seen = Outside()
    FakeSession.ended = []
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(ROOT / "tests" / "workloads_for_tests"))
    load = module.load_night
    monkeypatch.setattr(module, "load_night", lambda name: load(name).model_copy(update={"notify": BLOCKS}))
    monkeypatch.setattr("tasks.nightly.store.today", lambda: TONIGHT)
    for where in (module, prefect_tasks):
        monkeypatch.setattr(where, "get_run_logger", lambda: LOG)
    nothing = SimpleNamespace(rename=lambda *_: None, reconcile=lambda *_: None)
    monkeypatch.setattr(module, "prefect_runs", nothing)
    monkeypatch.setattr(module, "Session", FakeSession)
    monkeypatch.setattr(module, "artifacts", SimpleNamespace(night=lambda *_: None))
    monkeypatch.setattr(module, "events", SimpleNamespace(regressed=lambda night, page: seen.events.append(page)))
    for step in ("read_past", "decide", "report", "publish", "tell"):
        monkeypatch.setattr(prefect_tasks, step, getattr(prefect_tasks, step).fn)
    monkeypatch.setattr(prefect_tasks, "publish_night", lambda night, *_: seen.published.append(night.date) or [])
    monkeypatch.setattr("tasks.nightly.notify.send", seen.send)

    def measure(run: NightRun, session: object) -> None:
        seen.measured += 1

    monkeypatch.setattr(module, "_measure", measure)
    monkeypatch.setattr(module, "until_stopped", lambda session, work: work())
    return seen


@pytest.fixture
def measured(outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NightRun:
    """A night whose pairs have confirmed a slow-down, and which is not closed."""
    run = paired_run(tmp_path, monkeypatch, rate=92.0)
    plan = more_pairs(run)
    assert plan is not None
    measured_with(run, {BAD: 92.0})(plan)
    monkeypatch.setattr(prefect_tasks, "past_nights", lambda *_: run.past)
    return run


def test_a_start_that_fails_on_its_budget_leaves_the_date_free(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_tasks, "past_nights", lambda *_: History())
    nights = NightStore("small")
    with pytest.raises(ConfigError, match="1 s leave no time"):
        start(budget="1s")
    claimed = nights.load(TONIGHT)
    assert (claimed.budget_s, claimed.cells) == (1.0, [])
    start(budget="2h")
    night = nights.load(TONIGHT)
    assert (night.budget_s, night.sweep_id, outside.measured) == (7200.0, claimed.sweep_id, 1) and night.cells


@pytest.mark.usefixtures("outside", "measured")
def test_a_night_that_is_planned_keeps_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night_run, "renew", lambda plan: plan)
    start(budget="2h")
    assert NightStore("small").load(TONIGHT).budget_s == 600.0


def start(**more: Any) -> Any:
    return module.nightly.fn(name="small", date=TONIGHT, **more)


def test_a_night_that_was_closed_and_not_told_is_told_by_the_next_start(outside: Outside, measured: NightRun) -> None:
    """The flow was killed after it had closed the night: its verdicts stay, and nothing is measured or planned again."""
    close_night(measured)
    closed = measured.nights.load(TONIGHT)
    plan = measured.sweep.load_plan()
    page = measured.nights.folder(TONIGHT) / "report.html"
    assert [item.name for item in closed.worse()] == [CELL] and not closed.over and not page.exists()

    state = start()
    night = measured.nights.load(TONIGHT)
    assert (state.is_failed(), state.name) == (True, "Regressed")
    assert page.exists() and outside.events == [page.as_uri()] and outside.published == [TONIGHT]
    assert outside.sent == [f"{block}: REGRESSION" for block in BLOCKS] == [f"{block}: REGRESSION" for block in night.notified]
    assert FakeSession.ended == [(3, state.message)] and outside.measured == 0
    assert night.over and night == closed.model_copy(update={"notified": BLOCKS, "told_at": night.told_at})
    assert measured.sweep.load_plan() == plan

    again = start()
    assert (again.is_completed(), again.name, len(outside.sent)) == (True, "Skipped", 2)


def test_a_message_that_was_sent_is_not_sent_again(outside: Outside, measured: NightRun) -> None:
    """The flow is killed between two blocks; before that, MLflow did not answer."""
    close_night(measured)
    measured.remark("The verdicts are not in MLflow (ConnectionError).", "Not told: block x is gone.", "Night 2026-10-20 was interrupted.")
    outside.refused[BLOCKS[1]] = Killed()
    with pytest.raises(Killed):
        start()
    assert measured.nights.load(TONIGHT).notified == BLOCKS[:1] and not measured.nights.load(TONIGHT).over
    outside.refused[BLOCKS[1]] = NotifyError("block webhook/board did not take the message")
    state = start()
    night = measured.nights.load(TONIGHT)
    assert outside.sent == [f"{BLOCKS[0]}: REGRESSION"] and night.over
    assert night.remarks == ["Night 2026-10-20 was interrupted.", "Not told: block webhook/board did not take the message."]
    assert state.message.endswith("; Not told: block webhook/board did not take the message.")


@pytest.mark.usefixtures("measured")
def test_what_a_night_waited_for_others_is_no_time_of_its_own_and_told(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night_run, "renew", lambda plan: plan)
    monkeypatch.setattr(FakeSession, "waited", "it waited 2m for slots that sweep another held")
    shared: list[bool] = []
    monkeypatch.setattr(module, "_measure", lambda run, session: shared.append(run.waits is session.waits))
    start()
    assert shared == [True]
    assert NightStore("small").load(TONIGHT).remarks == ["The night's sweep: it waited 2m for slots that sweep another held."]


def test_a_night_is_closed_and_told_by_one_start(outside: Outside, measured: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night_run, "renew", lambda plan: plan)  # its made-up commits cannot be checked out
    state = start()
    night = measured.nights.load(TONIGHT)
    assert state.name == "Regressed" and outside.measured == 1
    assert night.closed_at is not None and night.told_at is not None and night.closed_at <= night.told_at
    assert len(outside.sent) == 2


def test_a_record_from_before_nights_noted_that_they_were_told_is_over_once_closed(outside: Outside, measured: NightRun) -> None:
    for closed_at, over in ((None, False), (1.8e9, True)):
        early = measured.night.model_dump(mode="json", exclude={"told_at"}) | {"closed_at": closed_at}
        (measured.nights.folder(TONIGHT) / "night.json").write_text(json.dumps(early))
        night = measured.nights.load(TONIGHT)
        assert (night.over, night.told_at) == (over, closed_at)
    assert start().name == "Skipped" and outside.sent == []
