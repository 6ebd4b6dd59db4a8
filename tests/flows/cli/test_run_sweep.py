"""What `sweep run` holds and hands over around its flow, whatever becomes of Prefect."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from experiments.config.errors import DamagedFile
from experiments.trial import Outcome
from flows.cli import nothing_to_do
from flows.cli import run_sweep as module
from flows.cli.run_sweep import FlowEnd, run_sweep
from flows.runtime import handover
from flows.runtime.prefect_server import PrefectServerError
from tasks.rounds.budget import with_budget
from tasks.sweep.request_text import command_of
from tasks.sweep.store import DecideSettings, Plan, Request, SweepStore
from tests.tasks.plan_support import SWEEP_ID, make_plan, make_trial, saved
from tests.tasks.race_support import race_settings

PLAN = make_plan([make_trial(1)])


class Stage:
    """In place of what the command starts. `flow` is called in place of the flow, `on_wait` where the server is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[Any] = []
        self.flow: Callable[[], FlowEnd] = lambda: FlowEnd(1, "not all", finished=True)
        self.on_wait: Callable[[], object] = lambda: None
        self.err = Console(file=StringIO(), width=200)
        monkeypatch.setattr(module, "prepare_environment", lambda: None)
        monkeypatch.setattr(module, "_warn_of_other_work", lambda plan, err, look: self.done.append("look"))
        monkeypatch.setattr(module, "head_start", self.head_start)
        monkeypatch.setattr(module, "own_server", self.own_server)
        monkeypatch.setattr(module, "_run_flow", lambda plan, expected, err, budget, until_decided: self.run())
        monkeypatch.setattr(module, "print_comparison", lambda out, store: None)
        monkeypatch.setattr(module, "print_where", lambda out, store: None)
        monkeypatch.setattr(module, "heeded", lambda running, resume: nullcontext())
        monkeypatch.setenv("PREFECT_API_URL", "before")

    @contextmanager
    def head_start(self, store: SweepStore, plan: Plan) -> Iterator[Any]:
        self.done.append("begin")
        try:
            yield SimpleNamespace(trial=plan.trials[0])
        finally:
            self.done.append("end")

    @contextmanager
    def own_server(self) -> Iterator[Any]:
        self.done.append("server")
        try:
            yield SimpleNamespace(url="http://127.0.0.1:1/api", wait=self.wait)
        finally:
            self.done.append("server ends")

    def wait(self) -> None:
        self.done.append("wait")
        self.on_wait()

    def run(self) -> FlowEnd:
        handed = handover.CURRENT.get()
        assert handed is not None and handed.sweep_id == SWEEP_ID and SweepStore(SWEEP_ID).is_held()
        self.done.append("flow")
        return self.flow()

    def sweep(self, plan: Plan = PLAN, **asked: Any) -> tuple[int, str]:
        """The exit status, and what was printed."""
        status = run_sweep(plan, Console(file=StringIO()), self.err, **asked)
        assert handover.CURRENT.get() is None and not SweepStore(SWEEP_ID).is_held()
        return status, self.err.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    saved(PLAN)
    return Stage(monkeypatch)


def test_the_trial_begins_before_the_server_and_the_flow_after_it(stage: Stage) -> None:
    saved(PLAN, t1=Outcome.OK)
    stage.flow = lambda: FlowEnd(0, "all well", finished=True)
    status, text = stage.sweep()
    assert status == 0 and stage.done == ["look", "begin", "server", "wait", "flow", "server ends", "end"]
    assert "starting a Prefect server for this command" in text and f"meanwhile {PLAN.trials[0].name} begins on pool cpu" in text


def test_the_first_lines_say_what_is_run_and_with_which_overrides(stage: Stage) -> None:
    request = Request(suite="made_up", set={"name": "[bold]"}, only={"width": [64]})
    _, text = stage.sweep(PLAN.model_copy(update={"request": request, "command": command_of(request, "smoke")}))
    assert text.splitlines()[:2] == [
        f"sweep {SWEEP_ID}: 1 trial, results in {SweepStore(SWEEP_ID).dir}",
        "command: sweep run made_up --profile smoke --set 'name=[bold]' --only width=64",
    ]


def test_a_damaged_database_of_mlflow_is_said_before_anything_starts(stage: Stage) -> None:
    path = SweepStore(SWEEP_ID).dir.parent / "mlflow.db"
    path.write_bytes(b"no database" + bytes(4096))
    with pytest.raises(DamagedFile, match=f"^{path} is damaged .*nothing measured is lost"):
        stage.sweep()
    assert stage.done == [] and not SweepStore(SWEEP_ID).is_held()


def test_ctrl_c_while_prefect_starts_ends_what_was_begun(stage: Stage) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    stage.on_wait = interrupt
    status, text = stage.sweep()
    assert status == 1 and stage.done == ["look", "begin", "server", "wait", "server ends", "end"]
    assert "interrupted before the flow came to its end; what was measured is kept" in text and text.endswith(
        f"go on with it: sweep resume {SWEEP_ID}\n"
    )


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        ({"budget": "20m"}, f"sweep resume {SWEEP_ID} --budget 20m"),
        ({"budget": "20m", "until_decided": False}, f"sweep resume {SWEEP_ID} --budget 20m --no-until-decided"),
        ({"until_decided": True}, f"sweep resume {SWEEP_ID} --until-decided"),
        ({"go_on": "sweep campaign gpu-x1 --budget 9m"}, "sweep campaign gpu-x1 --budget 9m"),
        ({"go_on": "sweep campaign 'pages[old].yaml' --set 'name=[bold]'"}, "sweep campaign 'pages[old].yaml' --set 'name=[bold]'"),
    ],
)
def test_the_hint_gives_again_what_time_was_given(stage: Stage, asked: dict[str, Any], command: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    stage.on_wait = interrupt
    status, text = stage.sweep(**asked)
    assert status == 1 and text.endswith(f"go on with it: {command}\n")


def test_a_server_that_does_not_start_names_the_resume_with_its_time(stage: Stage) -> None:
    def fail() -> None:
        raise PrefectServerError("the Prefect server ended with status 1")

    stage.on_wait = fail
    with pytest.raises(PrefectServerError, match=f"; go on with the sweep: sweep resume {SWEEP_ID} --budget 1h30m$"):
        stage.sweep(budget="1h30m")


def test_a_server_that_does_not_start_ends_what_was_begun(stage: Stage) -> None:
    def fail() -> None:
        raise PrefectServerError("the Prefect server ended with status 1")

    stage.on_wait = fail
    with pytest.raises(
        PrefectServerError, match=rf"^the Prefect server ended with status 1; go on with the sweep: sweep resume {SWEEP_ID}$"
    ):
        stage.sweep()
    assert stage.done[-2:] == ["server ends", "end"] and not SweepStore(SWEEP_ID).is_held()


@pytest.mark.parametrize(
    ("state", "complete"), [("COMPLETED", True), ("CRASHED", True), ("RUNNING", False), ("PENDING", False), (None, True)]
)
def test_a_complete_sweep_starts_a_flow_where_prefect_takes_an_earlier_one_for_running(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, state: str | None, complete: bool
) -> None:
    """Since a flow settles it. None: it is another server's."""
    store = saved(PLAN, t1=Outcome.OK)
    (store.dir / "report.md").touch()
    store.save_status(0, "as it was")
    store.add_flow_run("a-flow")
    monkeypatch.setattr(nothing_to_do, "is_published", lambda store, plan: True)
    (store.dir.parent / ".prefect").mkdir()
    with closing(sqlite3.connect(store.dir.parent / ".prefect" / "prefect.db")) as database, database:
        database.execute("create table flow_run (id text, state_type text)")
        database.execute("insert into flow_run values ('of-another-sweep', 'RUNNING')")
        if state is not None:
            database.execute("insert into flow_run values ('a-flow', ?)", (state,))
    _, text = stage.sweep()
    assert (stage.done == []) is complete and ("nothing to do: every trial is done" in text) is complete


@pytest.mark.parametrize(
    ("outcome", "status", "published", "complete"),
    [
        (Outcome.OK, 0, True, True),
        (Outcome.CRASHED, 2, True, True),
        (Outcome.OK, 0, False, False),
        (Outcome.OK, 1, True, False),  # the last flow could not do all
        (Outcome.OK, None, True, False),  # it was killed
        (Outcome.CANCELLED, 1, True, False),
        (None, 0, True, False),
    ],
)
def test_a_sweep_that_is_complete_starts_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, outcome: Outcome | None, status: int | None, published: bool, complete: bool
) -> None:
    store = saved(PLAN, **({"t1": outcome} if outcome else {}))
    (store.dir / "report.md").touch()
    if status is not None:
        store.save_status(status, "as it was")
    monkeypatch.setattr(nothing_to_do, "is_published", lambda store, plan: published)
    (told := store.trial_dir(PLAN.trials[0].key) / "trial.json").unlink()
    ended, text = stage.sweep()
    assert told.exists(), "what was lost of the plan is written again either way"
    assert (stage.done == []) is complete and ("nothing to do: every trial is done" in text) is complete
    assert ended == (status if complete else 1)


@pytest.mark.parametrize(
    ("asked", "comes", "complete"),
    [
        ({}, True, True),  # the last flow said that no round is to come: by its clock, not by what trials alone took
        ({"budget": "20m"}, True, False),
        ({"until_decided": False}, True, False),
        ({"budget": "20m"}, False, True),
        ({"until_decided": True}, False, True),
        ({"more": True}, True, False),  # a campaign's next run
        ({"more": True}, False, True),
    ],
)
def test_a_sweep_with_rounds_starts_something_where_more_is_asked_for_and_a_round_is_to_come(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], comes: bool, complete: bool
) -> None:
    plan = PLAN.model_copy(update={"decide": DecideSettings(budget_s=60.0, until_decided=True)})
    store = saved(plan, t1=Outcome.OK)
    (store.dir / "report.md").touch()
    store.save_status(0, "as it was")
    monkeypatch.setattr(nothing_to_do, "is_published", lambda store, plan: True)
    monkeypatch.setattr(nothing_to_do, "growth", lambda plan: lambda store, plan, ran_s: plan if comes else None)
    status, text = stage.sweep(plan, **asked)
    assert (stage.done == []) is complete and ("nothing to do: every trial is done" in text) is complete
    assert status == (0 if complete else 1)


def test_a_sweep_of_so_many_rounds_at_most_says_so() -> None:
    plan = make_plan([make_trial(1), make_trial(2)], decide=DecideSettings(budget_s=1500.0, most=2, least=2))
    assert module._size(saved(plan), plan) == "up to 2 rounds of 2 cells until no other fits in 25m"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "2 trials"),
        ({"decide": DecideSettings(budget_s=1500.0)}, "rounds of 2 cells until no other fits in 25m"),
        (
            {"decide": DecideSettings(budget_s=90.0, until_decided=True)},
            "rounds of 2 cells until all comparisons are decided, or until no other fits in 1m30s",
        ),
        ({"race": race_settings(budget_s=600.0)}, "rounds of 2 settings until the race is decided, or until no other fits in 10m"),
    ],
)
def test_a_resume_says_the_time_that_is_left_which_is_what_it_was_given(settings: dict[str, Any], said: str) -> None:
    plan = make_plan([make_trial(1), make_trial(2)], **settings)
    store = saved(plan)
    assert module._size(store, plan) == said
    saved(plan, t1=Outcome.OK)  # which took a minute
    if plan.decide or plan.race:
        assert module._size(store, with_budget(store, plan, 1200.0)) == f"{said.rpartition(' ')[0]} 20m more"
