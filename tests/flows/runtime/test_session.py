"""What the threads of one flow share: what is to do, how patient it is, how it is stopped, what it publishes."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import launchers
from cluster.journal.journal import JournalError
from cluster.launchers import Launch, LaunchError
from cluster.pools.node_locks import NodeLocks
from experiments.trial import Outcome, Trial, TrialResult
from flows.runtime import session as flows_session
from tasks.sweep.failure_policy import Policy
from tasks.sweep.store import Superseded
from tests.flows.flow_support import Stage, begun, calls, stage
from tests.mlflow_support import write_journal
from tests.tasks.plan_support import make_plan, make_result, make_suite, make_trial, saved

__all__ = ["stage"]  # a fixture


def numbers(trials: list[Trial]) -> list[int]:
    return [int(trial.key, 16) for trial in trials]


# --- what is to do


def test_begun_trials_are_run_first_and_done_ones_not(stage: Stage) -> None:
    plan = make_plan([make_trial(number) for number in range(1, 9)])
    saved(plan, t1=Outcome.OK, t2=Outcome.CRASHED, t5=Outcome.INFRA, t6=Outcome.CANCELLED, t7=Outcome.INFRA)
    begun(plan, 4, 5, 6)
    session = stage.session(plan)
    assert numbers(session.to_do()) == [4, 5, 3, 6, 7, 8]  # the 6th was told to end, the 7th never started
    rows = {number: session.board.rows[f"{number:016x}"] for number in range(1, 9)}
    assert [(rows[n].state, rows[n].outcome, rows[n].reason) for n in (1, 2)] == [
        ("done", Outcome.OK, None),
        ("done", Outcome.CRASHED, "made up"),
    ]
    assert {rows[n].state for n in range(3, 9)} == {"waiting"}
    assert calls(session) == [("start",)]


def test_what_runs_under_an_old_key_is_stopped(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    trials = [make_trial(1), make_trial(2), make_trial(3)]
    plan = make_plan(
        trials[2:],
        superseded=[
            Superseded(key=trials[0].key, by=trials[2].key, why="code changed"),
            Superseded(key=trials[1].key, by=trials[2].key, why="code changed"),  # was never started
            Superseded(key="f" * 16, by="nobody", why="no trial of this plan"),
        ],
    )
    old = saved(make_plan(trials))
    for key in (trials[0].key, "f" * 16):
        old.trial_dir(key).mkdir(parents=True, exist_ok=True)
        launchers.save(Launch(launcher="local", key=key, attempt=1, id="1"), old.trial_dir(key))
    session = stage.session(plan)
    assert numbers(session.to_do()) == [3]
    assert stage.launcher.stopped == [trials[0].key]
    stage.launcher.problem = LaunchError("pool p does not answer")
    assert numbers(session.to_do()) == [3]
    assert f"what runs under the old key {trials[0].key} cannot be stopped: pool p does not answer" in caplog.text


def test_a_plan_that_grew_is_saved_shown_and_published(stage: Stage) -> None:
    plan = make_plan([make_trial(1)])
    session = stage.session(plan)
    more = make_plan([make_trial(1), make_trial(2)])
    session.extend(more)
    assert session.plan == more == session.store.load_plan()
    assert list(session.board.rows) == [trial.key for trial in more.trials]
    assert calls(session) == [("extend", [trial.key for trial in more.trials])]


# --- how patient it is


def ended_ok(trial: Trial) -> TrialResult:
    return make_result(trial)


def test_a_suites_patience_reaches_its_trials(stage: Stage) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial], suite=make_suite(retries=7, hang_timeout_s=12.5)))
    stage.runner.result = ended_ok
    session.run(trial)
    ((store, launcher, policy, stop, _, _, say),) = stage.runner.made
    assert policy == Policy(retries=7, hang_timeout_s=12.5)
    assert (store, launcher, stop, say) == (session.store, stage.launcher, session.stop, session.board.say)


@pytest.mark.parametrize(("asked", "wait_s"), [(None, 600.0), (0.0, 0.0), (5.0, 5.0)])
def test_a_pool_is_waited_for_as_asked_else_as_it_says(stage: Stage, asked: float | None, wait_s: float) -> None:
    trial = make_trial(1)
    stage.runner.result = ended_ok
    stage.session(make_plan([trial]), asked).run(trial)
    watch = stage.runner.made[0][5]
    assert (watch.pool, watch.wait_s, watch.lost_after_s) == ("cpu", wait_s, 60.0)


def test_a_pool_that_is_down_shows_with_what_becomes_of_its_trials(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        flows_session, "time", SimpleNamespace(time=lambda: 100.0, localtime=lambda t: t, strftime=lambda _, t: f"at {t:g}")
    )
    session = stage.session(make_plan([make_trial(1)]))
    session._tell("cpu", "pool cpu does not answer", 60.0)
    assert session.board.pools == {"cpu": "does not answer; its trials wait until at 160 and then end as infra"}
    session._tell("cpu", "pool cpu refuses the token", 0.0)
    assert session.board.pools == {"cpu": "refuses the token; its trials end as infra"}
    session._tell("cpu", None, 60.0)
    assert session.board.pools == {}


@pytest.mark.parametrize(
    ("fields", "devices", "places", "widths"),
    [
        ({"nodes": 4, "exclusive": True, "accelerators_per_node": 8}, [1, 8, 16, 32], 4, [1, 1, 2, 4]),
        ({"nodes": 4, "exclusive": True, "accelerators_per_node": 8}, [64], 4, [4]),  # never more than there are
        ({"nodes": 1, "exclusive": False, "accelerators_per_node": 8}, [1, 2], 4, [1, 1]),
        ({"nodes": 2, "exclusive": False, "accelerators_per_node": 8}, [3], 5, [1]),
        ({"nodes": 3, "exclusive": False}, [2], 3, [1]),
        ({"nodes": 1, "exclusive": False, "accelerators_per_node": 1}, [4], 1, [1]),
    ],
)
def test_places_of_a_pool_and_how_many_a_trial_takes(
    stage: Stage, fields: dict[str, Any], devices: list[int], places: int, widths: list[int]
) -> None:
    trials = [make_trial(number, parameters={"devices": count}) for number, count in enumerate(devices, 1)]
    session = stage.session(make_plan(trials))
    session._pools = {"cpu": session.pool("cpu").model_copy(update={"accelerators_per_node": None, **fields})}
    assert session.places("cpu") == places
    assert [session.width(trial) for trial in trials] == widths


def test_a_trial_runs_while_it_holds_its_places(stage: Stage) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial]))
    pool = session.pool("cpu")

    def run(trial: Trial) -> TrialResult:
        assert session.board.rows[trial.key].state == "starting"
        busy = threading.Event()
        stop = threading.Event()
        with NodeLocks(pool, 1, 1, stop, lambda: (busy.set(), stop.set())):
            assert busy.is_set()
        return make_result(trial)

    stage.runner.result = run
    assert session.run(trial).outcome is Outcome.OK
    with NodeLocks(pool, 1, 1, threading.Event(), lambda: pytest.fail("it still holds its place")):
        pass


# --- one trial


def test_a_trial_that_ended_is_shown_published_and_kept(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    trial = make_trial(1)
    plan = make_plan([trial])
    session = stage.session(plan)
    begun(plan, 1)
    folder = session.store.trial_dir(trial.key)
    write_journal(folder, 1, 3)
    (folder / "log.txt").write_text("\x1b[31mred\x1b[0m")
    stage.runner.result = lambda trial: make_result(trial, summary={"throughput": 12.34})
    with caplog.at_level(logging.INFO):
        result = session.run(trial)
    assert result.outcome is Outcome.OK
    assert (folder / "steps.parquet").exists()
    assert stage.launcher.kept == [trial.key]
    assert calls(session) == [("finish", trial.key, Outcome.OK, folder)]
    assert session.board.rows[trial.key].outcome is Outcome.OK
    assert stage.artifacts.made == ["trial", "progress"]
    assert f"{trial.name}: ok, 12.3 samples/s" in caplog.messages
    assert f"log of {trial.name}:\nred" in caplog.messages


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_unexpected_ending_is_an_error_in_the_log(stage: Stage, caplog: pytest.LogCaptureFixture, outcome: Outcome) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial]))
    (session.store.trial_dir(trial.key) / "log.txt").write_text("text")
    stage.runner.result = lambda trial: make_result(trial, outcome)
    with caplog.at_level(logging.INFO):
        session.run(trial)
    (said,) = [record for record in caplog.records if record.getMessage().startswith(f"{trial.name}: {outcome}")]
    assert said.levelno == (logging.INFO if outcome in ("ok", "does_not_fit", "unsupported") else logging.ERROR)
    assert said.getMessage().endswith("" if outcome == "ok" else " (made up)")
    assert any("log of" in message for message in caplog.messages) == (outcome != "cancelled")


def test_results_that_cannot_be_kept_on_the_pool_are_said_and_counted(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    trial = make_trial(1)
    plan = make_plan([trial])
    session = stage.session(plan)
    begun(plan, 1)
    stage.launcher.problem = LaunchError("storage is away")
    stage.runner.result = ended_ok
    assert session.run(trial).outcome is Outcome.OK
    assert "results are here and not on the pool's storage: storage is away" in caplog.text
    assert calls(session)[-1][:3] == ("finish", trial.key, Outcome.OK)


def test_a_journal_that_others_changed_ends_as_infra_and_is_never_published(stage: Stage) -> None:
    trial = make_trial(1, emulated=True)
    session = stage.session(make_plan([trial]))
    error = JournalError(Path("journal.jsonl"), 3, "checksum is x")

    def fail(trial: Trial) -> TrialResult:
        raise error

    stage.runner.result = fail
    result = session.run(trial)
    assert (result.outcome, result.reason, result.emulated) == (Outcome.INFRA, str(error), True)
    assert session.damaged == [str(error)] and calls(session) == []
    assert session.store.result(trial.key) is None
    assert session.board.rows[trial.key].outcome is Outcome.INFRA


def test_records_go_to_the_board_and_to_mlflow_with_the_time_of_the_attempts_first(stage: Stage) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial]))
    step = {"kind": "step", "step": 1, "loss": 0.5}
    session._observe(trial, 1, [{**step, "t": 10.0}, {**step, "t": 11.0}])
    session._observe(trial, 1, [{**step, "t": 12.0}])
    session._observe(trial, 2, [{**step, "t": 20.0}])
    fed = [("feed", trial.key, 1, 10.0, 2), ("feed", trial.key, 1, 10.0, 1), ("feed", trial.key, 2, 20.0, 1)]
    assert calls(session) == fed
    assert (session.board.rows[trial.key].attempt, session.board.rows[trial.key].step) == (2, 1)


# --- being told to stop


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


def test_a_stop_waits_until_each_trial_has_said_how_it_ended(stage: Stage) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial]))
    session._all_ended = gate = Gate()
    at_work = threading.Event()

    def run(trial: Trial) -> TrialResult:
        at_work.set()
        session.stop.wait()
        gate.opened.wait()
        return make_result(trial, Outcome.CANCELLED)

    stage.runner.result = run
    thread = threading.Thread(target=session.run, args=(trial,))
    thread.start()
    try:
        at_work.wait()
        session.stop_now("enough")
        assert [call[:3] for call in calls(session)] == [("finish", trial.key, Outcome.CANCELLED)]
        assert session._at_work == 0
    finally:
        session.stop.set()
        gate.opened.set()
        thread.join()
    assert session.store.stop_reason() == "enough"
    assert 0 < gate.timeout < 30  # after which Prefect kills a cancelled flow


def test_a_trial_that_fails_badly_is_at_work_no_more(stage: Stage) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial]))

    def fail(trial: Trial) -> TrialResult:
        assert session._at_work == 1
        raise ZeroDivisionError

    stage.runner.result = fail
    with pytest.raises(ZeroDivisionError):
        session.run(trial)
    assert session._at_work == 0


def test_a_stop_ends_what_nobody_follows_and_keeps_the_first_reason(stage: Stage) -> None:
    plan = make_plan([make_trial(1), make_trial(2), make_trial(3)])
    session = stage.session(plan)
    begun(plan, 1, 2)
    session.store.save_result(make_result(plan.trials[0]))
    session.store.request_stop("first")
    session.stop_now("second")
    assert session.store.stop_reason() == "first" and session.stop.is_set()
    assert stage.launcher.stopped == [plan.trials[1].key]
    stage.launcher.problem = LaunchError("pool p does not answer")
    session.stop_now("third")  # is no reason to fail


def test_the_stop_file_becomes_the_event_that_trials_watch(stage: Stage) -> None:
    session = stage.session(make_plan([make_trial(1)]))
    seen: list[bool] = []

    def look(timeout: float) -> bool:
        seen.append(session.stop.is_set())
        if len(seen) == 2:
            session.store.request_stop("enough")
        return len(seen) == 3

    session.watch_stop_file(SimpleNamespace(wait=look))  # type: ignore[arg-type]
    assert seen == [False, False, True]


# --- the end


@pytest.fixture
def end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the end of a session calls, with what it gives or raises."""
    told = SimpleNamespace(files=[Path("report.md")], report=None, published=SimpleNamespace(trials={"k": "link"}), mlflow=None, calls=[])

    def write_report(folder: Path, mlflow_links: Any = None) -> Any:
        told.calls.append(("report", mlflow_links))
        if told.report:
            raise told.report
        return SimpleNamespace(all=told.files)

    def publish(store: Any, plan: Any, files: list[Path], reason: str | None, *, wait_s: float, log: Any) -> Any:
        told.calls.append(("publish", files, reason, wait_s))
        if told.mlflow:
            raise told.mlflow
        return told.published

    monkeypatch.setattr(flows_session, "write_report", write_report)
    monkeypatch.setattr(flows_session, "publish_sweep", publish)
    told.session = stage.session(make_plan([make_trial(1)]))
    told.artifacts = stage.artifacts
    return told


def test_at_the_end_all_is_reported_published_and_linked(end: SimpleNamespace) -> None:
    end.session.store.request_stop("enough")
    assert end.session.publish_and_report() is None
    assert end.calls == [("report", None), ("publish", end.files, "enough", 60.0), ("report", {"k": "link"})]
    assert calls(end.session) == [("close",)]
    assert end.artifacts.made == ["sweep"]
    assert end.session.board.note == "publishing"


def test_a_sweep_without_published_trials_has_no_links(end: SimpleNamespace) -> None:
    end.published = SimpleNamespace(trials={})
    assert end.session.publish_and_report() is None
    assert end.calls == [("report", None), ("publish", end.files, None, 60.0)]


def test_a_report_that_fails_does_not_keep_results_from_mlflow(end: SimpleNamespace) -> None:
    end.report, end.published = ValueError("no figures\nat all"), SimpleNamespace(trials={})
    assert end.session.publish_and_report() == "no report (no figures)"
    assert end.calls[-1] == ("publish", [], None, 60.0)


def test_what_mlflow_did_not_take_is_said_with_what_to_do(end: SimpleNamespace) -> None:
    end.mlflow = ConnectionError("no answer")
    sweep_id = end.session.store.sweep_id
    assert end.session.publish_and_report() == (
        f"not all is in MLflow (no answer): nothing is lost, `sweep resume {sweep_id}` publishes it"
    )
    assert end.artifacts.made == ["sweep"]


def test_damage_is_said_once(end: SimpleNamespace) -> None:
    end.mlflow = JournalError(Path("journal.jsonl"), 3, "x")
    end.session.damaged = [str(end.mlflow), "another"]
    assert end.session.publish_and_report() == f"{end.mlflow}; another"
