"""One run of the flow over one sweep: what is to do, how patient it is, what it publishes."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import launchers
from cluster.journal.errors import JournalError
from cluster.launchers import Launch, LaunchError
from cluster.pools.pool import Pool
from experiments.spec.schema import ReportSettings
from experiments.trial import Outcome, Trial, TrialResult
from flows.runtime import session as flows_session
from flows.runtime.progress import SweepProgress
from flows.runtime.session import Session
from tasks.sweep import head_start
from tasks.sweep.deadline import Deadline
from tasks.sweep.failure_policy import Policy
from tasks.sweep.head_start import FEW_CORES
from tasks.sweep.store import OF_CAMPAIGN, DecideSettings, Superseded
from tests.flows.flow_support import LOG, FakeLauncher, Stage, begun, calls, run_trial, stage
from tests.tasks.plan_support import SWEEP_ID, make_plan, make_result, make_suite, make_trial, saved

__all__ = ["stage"]  # a fixture


def numbers(trials: list[Trial]) -> list[int]:
    return [int(trial.key, 16) for trial in trials]


def test_begun_trials_are_run_first_and_done_ones_not(stage: Stage) -> None:
    plan = make_plan([make_trial(number) for number in range(1, 9)])
    saved(plan, t1=Outcome.OK, t2=Outcome.CRASHED, t5=Outcome.INFRA, t6=Outcome.CANCELLED, t7=Outcome.INFRA)
    begun(plan, 4, 5, 6)
    session = stage.session(plan)
    assert numbers(session.to_do()) == [4, 5, 3, 6, 7, 8]  # the 6th was told to end, the 7th never started
    rows = {number: session.progress.rows[f"{number:016x}"] for number in range(1, 9)}
    assert [(rows[n].state, rows[n].result) for n in (1, 2)] == [
        ("done", session.store.result(plan.trials[0].key)),
        ("done", session.store.result(plan.trials[1].key)),
    ]
    assert {rows[n].state for n in range(3, 9)} == {"waiting"}
    assert [n for n, row in rows.items() if row.earlier] == [1, 2]
    assert calls(session) == [("start",), ("loaded",)]


_REMOTE = {"address": "http://10.0.0.7:8265", "exclusive": False}


@pytest.mark.parametrize(
    ("entry", "cores", "waits"),
    [({}, 64, True), ({"device": "cuda"}, FEW_CORES - 1, True), ({"device": "cuda"}, FEW_CORES, False), (_REMOTE, 1, False)],
)
def test_mlflow_is_loaded_before_a_trial_measures_that_this_would_disturb(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], cores: int, waits: bool
) -> None:
    pool = Pool(**{"name": "cpu", "device": "cpu", "address": "embedded", **entry})
    monkeypatch.setattr(flows_session, "find_pool", lambda pools, name: pool)
    monkeypatch.setattr(head_start.os, "sched_getaffinity", lambda pid: set(range(cores)))
    plan = make_plan([make_trial(1)])
    saved(plan)
    session = stage.session(plan)
    session.to_do()
    assert calls(session) == [("start",), *([("loaded",)] if waits else [])]


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


_WAITED = "it waited 1m30s for slots that bert-1 and vit-2 held, which does not count as its time"


@pytest.mark.parametrize(
    ("decide", "ends", "seconds", "text"),
    [
        (None, None, 90.0, None),  # its time is not limited
        (DecideSettings(budget_s=60.0), None, 0.9, None),
        (
            DecideSettings(budget_s=60.0),
            None,
            90.0,
            _WAITED,
        ),
        (None, Deadline(1.0, {}), 90.0, _WAITED),
    ],
)
def test_what_it_waited_for_others_is_told_where_its_time_is_limited(
    stage: Stage, decide: DecideSettings | None, ends: Deadline | None, seconds: float, text: str | None
) -> None:
    session = stage.session(make_plan([make_trial(1)], decide=decide))
    assert (session.deadline, session.waited) == (None, None)
    session.deadline = ends
    session.waits = SimpleNamespace(seconds=seconds, holders={"vit-2", "bert-1"})  # type: ignore[assignment]
    assert session.waited == text
    session.waits = SimpleNamespace(seconds=seconds, holders=set())  # type: ignore[assignment]
    assert session.waited == (text.replace("bert-1 and vit-2", "others") if text else None)


def test_a_nights_time_is_limited_too(stage: Stage) -> None:
    session = stage.session(make_plan([make_trial(1)], suite=make_suite(suite="nightly-small")))
    session.waits = SimpleNamespace(seconds=1.0, holders={"bert-1"})  # type: ignore[assignment]
    assert session.waited == "it waited 1s for slots that bert-1 held, which does not count as its time"


def test_its_trials_wait_on_its_deadlines_account(stage: Stage) -> None:
    plan, ends = make_plan([make_trial(1)]), Deadline(1.0, {})
    session = Session(saved(plan), plan, SweepProgress(plan.trials), LOG, deadline=ends)
    assert session.waits is ends.waits and all(pool.waits is ends.waits for pool in session.pools.values())


def test_a_plan_that_grew_is_saved_shown_and_published(stage: Stage) -> None:
    plan = make_plan([make_trial(1)])
    session = stage.session(plan)
    more = make_plan([make_trial(1), make_trial(2)])
    session.extend(more)
    assert session.plan == more == session.store.load_plan()
    assert list(session.progress.rows) == [trial.key for trial in more.trials]
    assert calls(session) == [("extend", [trial.key for trial in more.trials])]


def ended_ok(trial: Trial) -> TrialResult:
    return make_result(trial)


def test_a_suites_patience_reaches_its_trials(stage: Stage) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial], suite=make_suite(retries=7, retries_disturbed=4, hang_timeout_s=12.5)))
    stage.runner.result = ended_ok
    run_trial(session, trial)
    ((store, launcher, policy, stop, _, _, waiting, disturbances, _, _, searches),) = stage.runner.made
    assert policy == Policy(retries=7, disturbed=4, hang_timeout_s=12.5)
    assert disturbances is session.pools[trial.pool].disturbances and searches is session.searches
    assert (store, launcher, stop) == (session.store, stage.launcher, session.stop.event)
    waiting(trial, "waits for the pool")
    assert session.progress.rows[trial.key].state == "waits for the pool"


@pytest.mark.parametrize(("metric", "again"), [("eval_loss_after", 0), ("throughput", 4)])
def test_what_a_model_learns_is_not_measured_again_where_other_work_ran(stage: Stage, metric: str, again: int) -> None:
    trial = make_trial(1)
    suite = make_suite(retries_disturbed=4, report=ReportSettings(rows=["pool"], columns="pool", metric=metric))
    stage.runner.result = ended_ok
    run_trial(stage.session(make_plan([trial], suite=suite)), trial)
    assert stage.runner.made[0][2].disturbed == again


@pytest.mark.parametrize(("asked", "wait_s"), [(None, 600.0), (0.0, 0.0), (5.0, 5.0)])
def test_a_pool_is_waited_for_as_asked_else_as_it_says(stage: Stage, asked: float | None, wait_s: float) -> None:
    trial = make_trial(1)
    stage.runner.result = ended_ok
    run_trial(stage.session(make_plan([trial]), asked), trial)
    watch = stage.runner.made[0][5]
    assert (watch.pool, watch.wait_s, watch.lost_after_s) == ("cpu", wait_s, 60.0)


DRAWN = (("Each cell", Path("throughput.svg")),)


@pytest.fixture
def end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the end of a session calls, with what it gives or raises."""
    told = SimpleNamespace(files=[Path("report.md")], report=None, published=SimpleNamespace(trials={"k": "link"}), mlflow=None, calls=[])

    class Report:
        def __call__(self, folder: Path, mlflow_links: Any = None, drawn: Any = None) -> Any:
            told.calls.append(("report", mlflow_links))
            assert drawn == (None if mlflow_links is None or told.report else DRAWN), "what is drawn once is not drawn again"
            if told.report:
                raise told.report
            said = {"headline": "**MP-1 is fastest**", "line": "MP-1 is fastest (sweep s)", "html": Path("report.html")}
            return SimpleNamespace(all=told.files, damage=[], drawn=DRAWN, **said)

        def with_options(self, task_run_name: str) -> Report:
            told.calls.append(task_run_name)
            return self

    def publish(store: Any, plan: Any, files: list[Path], headline: str, waiting: Any) -> Any:
        assert (store, plan.unquote()) == (told.session.store, told.session.plan)
        assert headline == ("**MP-1 is fastest**" if files else "")
        told.calls.append(("publish", files))
        if told.mlflow:
            waiting("does not answer (no answer)")
            raise told.mlflow
        return told.published

    monkeypatch.setattr(flows_session, "report", Report())
    monkeypatch.setattr(flows_session, "publish", publish)
    told.session = stage.session(make_plan([make_trial(1)]))
    told.artifacts = stage.artifacts
    return told


def test_at_the_end_all_is_reported_published_and_linked(end: SimpleNamespace) -> None:
    assert end.session.publish_and_report() is None
    assert end.calls == [("report", None), ("publish", end.files), "report with links to MLflow", ("report", {"k": "link"})]
    assert calls(end.session) == [("close",)]
    assert end.artifacts.made == ["progress", "sweep"]
    assert end.session.progress.note == "publishing"
    assert end.session.found == "MP-1 is fastest (sweep s). Report: report.html"


def test_a_sweep_without_published_trials_has_no_links(end: SimpleNamespace) -> None:
    end.published = SimpleNamespace(trials={})
    assert end.session.publish_and_report() is None
    assert end.calls == [("report", None), ("publish", end.files)]


def test_a_report_that_fails_does_not_keep_results_from_mlflow(end: SimpleNamespace) -> None:
    end.report, end.published = ValueError("no figures\nat all"), SimpleNamespace(trials={})
    assert end.session.publish_and_report() == "no report (no figures)"
    assert end.session.found == ""
    assert end.calls[-1] == ("publish", [])


def test_what_mlflow_did_not_take_is_said_with_what_to_do(end: SimpleNamespace) -> None:
    end.mlflow = ConnectionError("no answer")
    sweep_id = end.session.store.sweep_id
    assert end.session.publish_and_report() == (
        f"not all is in MLflow (no answer): nothing is lost, `sweep resume {sweep_id}` publishes it"
    )
    assert end.session.progress.problems() == {"MLflow": "does not answer (no answer)"}, "the wait is no silence"
    assert end.artifacts.made == ["progress", "sweep"]


def test_first_failures_are_told_and_are_no_failure_to_publish(end: SimpleNamespace) -> None:
    assert end.session.given_up is None
    end.session._failures.why = "stopped: the first 3 trials all crashed"
    assert end.session.publish_and_report() is None and end.session.given_up == "stopped: the first 3 trials all crashed"


def test_damage_is_reported_once(end: SimpleNamespace) -> None:
    end.mlflow = JournalError(Path("journal.jsonl"), 3, "x")
    end.session._records.damage = [str(end.mlflow), "another"]
    assert end.session.publish_and_report() == f"{end.mlflow}; another"


class Head:
    """In place of the first trial's head start: it has begun, and may have ended."""

    def __init__(self, trial: Trial | None, pool: str = "cpu") -> None:
        self.first, self.launcher, self.slot_log, self.ended = trial, FakeLauncher(), object(), list[str]()
        self.trial: Any = trial or SimpleNamespace(pool=pool)

    def settle(self, plan: Any) -> Trial | None:
        return self.first

    def end(self, reason: str) -> None:
        self.ended.append(reason)


@pytest.mark.parametrize("ended", [None, Outcome.OK, Outcome.INFRA, Outcome.CANCELLED])
def test_a_trial_that_began_before_the_flow_is_followed_first_even_if_it_has_ended(stage: Stage, ended: Outcome | None) -> None:
    plan = make_plan([make_trial(1), make_trial(2), make_trial(3)])
    saved(plan, t1=Outcome.OK, **({"t2": ended} if ended else {}))
    begun(plan, 2)
    head: Any = Head(plan.trials[1])
    session = Session(saved(plan), plan, SweepProgress(plan.trials), LOG, None, head)
    assert numbers(session.to_do()) == [2, 3]
    assert session.progress.rows[plan.trials[1].key].state == "waiting"
    assert session.pools["cpu"].launcher is head.launcher and session.pools["cpu"].head_start is head
    assert session.pools["cpu"].slot_log is head.slot_log  # one flow's lines


def test_one_that_did_not_begin_is_run_like_the_others(stage: Stage) -> None:
    plan = make_plan([make_trial(1), make_trial(2)])
    head: Any = Head(None, pool="another")
    session = Session(saved(plan), plan, SweepProgress(plan.trials), LOG, None, head)
    assert numbers(session.to_do()) == [1, 2]
    assert session.pools["cpu"].launcher is stage.launcher and session.pools["cpu"].head_start is None


def test_what_began_and_was_not_taken_over_is_ended_before_anything_is_published(stage: Stage, end: SimpleNamespace) -> None:
    plan = make_plan([make_trial(1)])
    head: Any = Head(plan.trials[0])
    session = end.session = Session(saved(plan), plan, SweepProgress(plan.trials), LOG, None, head)
    session.store.request_stop("enough for today")
    head.end = lambda reason: end.calls.append(("ended", reason))
    session.publish_and_report()
    assert end.calls[0] == ("ended", "enough for today")


@pytest.mark.parametrize(
    ("decide", "ab", "ends", "ran_s", "left_s"),
    [
        (None, None, None, None, math.inf),
        (None, None, 40.0, None, 40.0),
        (100.0, None, None, 30.0, 70.0),
        (100.0, None, 40.0, 60.0, 40.0),  # rounds know of the deadline
        (100.0, {}, None, 30.0, math.inf),  # a round of an A/B sweep is finished
    ],
)
def test_how_much_time_a_sweep_has_left(
    stage: Stage, decide: float | None, ab: Any, ends: float | None, ran_s: float | None, left_s: float
) -> None:
    session = stage.session(make_plan([make_trial(1)], decide=None if decide is None else DecideSettings(budget_s=decide)))
    session.plan = session.plan.model_copy(update={"ab": ab})
    session.deadline = None if ends is None else Deadline(1000.0 + ends, {}, clock=lambda: 1000.0)
    session.ran_s = None if ran_s is None else lambda: ran_s
    assert session.left_s == session.searches.left_s() == left_s


@pytest.mark.parametrize(("ended", "left_s", "goes_on"), [(None, 0.0, True), (1, 0.0, True), (2, 0.0, False), (2, 30.0, True)])
def test_what_has_begun_goes_on_whatever_time_is_left(stage: Stage, ended: int | None, left_s: float, goes_on: bool) -> None:
    """`ended`: the attempt that is known to have ended; the second one was begun last. Each measures for 30 s."""
    plan = make_plan([make_trial(1, parameters={"measure_s": 30.0})])
    begun(plan, 1, attempt=2)
    session = stage.session(plan)
    if ended is not None:
        session.store.save_result(make_result(plan.trials[0], Outcome.CANCELLED, attempt=ended))
    session.deadline = Deadline(1000.0 + left_s, {}, clock=lambda: 1000.0)
    assert session.in_time(plan.trials[0]) is goes_on
    assert session.progress.rows[plan.trials[0].key].state == ("waiting" if goes_on else "no time left")
    assert session.deadline.late == (set() if goes_on else {plan.trials[0].key})


@pytest.mark.parametrize("ended", [None, 1, 2])
@pytest.mark.parametrize(
    ("started", "problem", "left_s", "goes_on"),
    [
        (False, None, 29.9, False),
        (False, None, 30.0, True),
        (True, None, 0.0, True),
        (False, LaunchError("pool cpu does not answer"), 0.0, True),
    ],
)
def test_a_trial_whose_flow_died_in_its_start_goes_on_where_it_may_have_begun(
    stage: Stage, ended: int | None, started: bool, problem: LaunchError | None, left_s: float, goes_on: bool
) -> None:
    """`ended`: the attempt that a flow gave a result; that of the second one, which was starting, told that it was not started."""
    plan = make_plan([make_trial(1, parameters={"measure_s": 30.0})])
    trial, session = plan.trials[0], stage.session(plan)
    folder = session.store.trial_dir(trial.key)
    launchers.save(Launch(launcher="local", key=trial.key, attempt=2, id="", starting=True), folder)
    if ended is not None:
        session.store.save_result(make_result(trial, Outcome.CANCELLED, attempt=ended))
    stage.launcher.started, stage.launcher.problem = started, problem
    session.deadline = Deadline(1000.0 + left_s, {}, clock=lambda: 1000.0)
    assert session.in_time(trial) is goes_on
    launch = launchers.load(folder)
    assert launch is not None and launch.starting is not (started and problem is None)


@pytest.mark.parametrize(
    ("labels", "then"), [({}, f"`sweep resume {SWEEP_ID} --budget TIME`"), ({OF_CAMPAIGN: "gpu-x1"}, "the campaign's next run")]
)
@pytest.mark.parametrize(("entry", "where"), [({}, ""), (_REMOTE, " on the node that keeps it, and starts anew on another one")])
def test_trials_whose_search_time_cut_off_are_cut_from_the_plan_and_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, labels: dict[str, str], then: str, entry: dict[str, Any], where: str
) -> None:
    pool = Pool(**{"name": "cpu", "device": "cpu", "address": "embedded", **entry})
    monkeypatch.setattr(flows_session, "find_pool", lambda pools, name: pool)
    trials = [make_trial(1), make_trial(2), make_trial(3)]
    plan = make_plan(trials, labels=labels)
    session = stage.session(plan)
    saved(plan, t1=Outcome.OK, t2=Outcome.CANCELLED, t3=Outcome.OK)
    assert session.searched is None
    session.searches.cut.update({trials[1].key, trials[2].key})  # of the 3rd an earlier attempt counts
    for _ in range(2):
        told = f"no time was left to search the largest batch of {trials[1].name}: {then} goes on from what was tried{where}"
        assert session.searched == told
        session.cut()
    assert (numbers(session.plan.trials), numbers(session.plan.cut)) == ([1, 3], [2])
    assert session.store.load_plan() == session.plan


def test_of_searches_here_and_on_a_cluster_it_is_said_that_one_may_start_anew(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        flows_session,
        "find_pool",
        lambda pools, name: Pool(**{"name": name, "device": "cpu", "address": "embedded", **(_REMOTE if name == "far" else {})}),
    )
    plan = make_plan([make_trial(1), make_trial(2, pool="far")])
    session = stage.session(plan)
    session.searches.cut.update(trial.key for trial in plan.trials)
    assert str(session.searched).endswith(" goes on from what was tried on the node that keeps it, and starts anew on another one")
