"""A sweep's run in MLflow, one run for each attempt, and outages: on a client without MLflow."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from cluster.journal.errors import JournalError
from cluster.journal.lines import encode
from experiments.config.errors import DamagedFile
from experiments.config.paths import runs_root
from experiments.trial import Outcome, Trial, TrialResult
from tasks.analysis.held_files import keep_held
from tasks.analysis.results import load_sweep
from tasks.sweep.store import Plan, Superseded, SweepStore
from tasks.tracking import projection
from tasks.tracking.projection import held_metrics, publish_sweep
from tasks.tracking.runs import SweepRuns
from tasks.tracking.settle_runs import settle
from tests.mlflow_support import write_journal
from tests.tasks.fake_mlflow import Client, client
from tests.tasks.held_support import write_held
from tests.tasks.plan_support import SWEEP_ID, make_plan, make_result, make_trial, saved

__all__ = ["client"]  # a fixture

STEPS = 6


def project(plan: Plan, *, reason: str | None = None, artifacts: tuple[Path, ...] = ()) -> Any:
    return publish_sweep(SweepStore(plan.sweep_id), plan, artifacts, reason, wait_s=0)


def rated(trial: Trial, rate: float | None, outcome: Outcome = Outcome.OK, **fields: Any) -> TrialResult:
    return make_result(trial, outcome, summary={"throughput": rate}, **fields)


# --- the sweep's own run


def test_the_best_rate_is_of_what_was_measured(client: Client) -> None:
    trials = [make_trial(number) for number in range(1, 7)]
    trials[2] = trials[2].model_copy(update={"emulated": True})
    plan = make_plan(trials)
    store = saved(plan)
    for result in (
        rated(trials[0], 100.0),
        rated(trials[1], 250.0),
        rated(trials[2], 9000.0),  # on an emulated pool
        rated(trials[3], 8000.0, emulated=True),  # its device said so only once it ran
        rated(trials[4], 7000.0, Outcome.DIVERGED),
        rated(trials[5], None),
    ):
        store.save_result(result)
    project(plan)
    (parent,) = client.with_role("parent")
    assert client.last(parent.info.run_id) == {"trials": 6.0, "trials_ok": 5.0, "trials_diverged": 1.0, "best_throughput": 250.0}


def test_what_a_sweep_has_after_it_was_gone_on_with_is_what_mlflow_shows(client: Client) -> None:
    """Of values of one step and time MLflow shows the largest: a best rate of another code, and trials that no longer failed, stayed."""
    plan = make_plan([make_trial(number) for number in range(1, 5)])
    store = saved(plan)
    for trial, outcome in zip(plan.trials, (Outcome.OK, Outcome.CRASHED, Outcome.CRASHED), strict=False):
        store.save_result(rated(trial, 120.0, outcome))
    project(plan)
    (parent,) = client.with_role("parent")
    first = {"trials": 4.0, "trials_ok": 1.0, "trials_crashed": 2.0, "trials_not_run": 1.0, "best_throughput": 120.0}
    assert client.last(parent.info.run_id) == first
    project(plan)
    assert len(client.metrics[parent.info.run_id]) == len(first), "what is as before is not logged again"
    for trial in plan.trials:
        store.save_result(rated(trial, 100.0))
    project(plan)
    last = {"trials": 4.0, "trials_ok": 4.0, "trials_crashed": 0.0, "trials_not_run": 0.0, "best_throughput": 100.0}
    assert client.last(parent.info.run_id) == last


@pytest.mark.parametrize("emulated", [True, False])
def test_a_sweep_that_measured_nothing_has_no_best_rate(client: Client, emulated: bool) -> None:
    plan = make_plan([make_trial(1, emulated=emulated), make_trial(2)])
    saved(plan).save_result(rated(plan.trials[0], 100.0 if emulated else None))
    project(plan)
    (parent,) = client.with_role("parent")
    assert client.last(parent.info.run_id) == {"trials": 2.0, "trials_ok": 1.0, "trials_not_run": 1.0}


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ({"t1": Outcome.OK, "t2": Outcome.DOES_NOT_FIT}, "FINISHED"),
        ({"t1": Outcome.OK, "t2": Outcome.CRASHED}, "FAILED"),
        ({"t1": Outcome.OK, "t2": Outcome.INFRA}, "FAILED"),
        ({"t1": Outcome.OK, "t2": Outcome.CANCELLED}, "KILLED"),
        ({"t1": Outcome.OK}, "KILLED"),
    ],
)
def test_how_a_sweep_ended(client: Client, outcomes: dict[str, Outcome], status: str) -> None:
    plan = make_plan([make_trial(1), make_trial(2)])
    saved(plan, **outcomes)
    project(plan)
    (parent,) = client.with_role("parent")
    assert parent.info.status == status


def test_a_reason_to_stop_goes_once_the_sweep_is_whole(client: Client) -> None:
    plan = make_plan([make_trial(1), make_trial(2)])
    store = saved(plan, t1=Outcome.OK, t2=Outcome.CANCELLED)
    project(plan, reason="enough")
    (parent,) = client.with_role("parent")
    assert parent.data.tags["reason"] == "enough"
    project(plan)
    assert parent.data.tags["reason"] == "enough"
    store.save_result(make_result(plan.trials[1]))
    project(plan)
    assert "reason" not in parent.data.tags


def test_the_sweeps_run_says_what_it_was(client: Client) -> None:
    plan = make_plan([make_trial(1)], git={"commit": "abc", "dirty": True}, labels={"night": "n"})
    saved(plan)
    found = project(plan)
    (parent,) = client.with_role("parent")
    said = {"sweep.id": SWEEP_ID, "sweep.role": "parent", "sweep.profile": "full", "sweep.command": plan.command, "night": "n"}
    assert said.items() <= parent.data.tags.items()
    assert (parent.data.tags["git.commit"], parent.data.tags["git.dirty"]) == ("abc", "true")
    assert (parent.info.run_name, parent.info.start_time) == (SWEEP_ID, 1_700_000_000_000)
    assert list(client.experiments) == ["made_up"]
    assert (found.sweep_id, found.parent, found.trials) == (SWEEP_ID, parent.info.run_id, {})


def test_artifacts_that_are_there_are_sent(client: Client) -> None:
    plan = make_plan([make_trial(1)])
    store = saved(plan)
    (store.dir / "figures").mkdir()
    (store.dir / "report.md").write_text("# Report")
    project(plan, artifacts=tuple(store.dir / name for name in ("figures", "report.md", "plan.json", "nowhere.json")))
    (parent,) = client.with_role("parent")
    assert client.artifacts[parent.info.run_id] == ["figures/", "report.md", "plan.json"]


# --- one run for each thing


def test_of_several_runs_for_one_trial_a_published_one_stays(client: Client) -> None:
    trial = make_trial(1)
    plan = make_plan([trial])
    runs = SweepRuns(client, plan)  # type: ignore[arg-type]
    tags = {"trial.key": trial.key, "trial.attempt": "1", "sweep.id": SWEEP_ID, "sweep.role": "trial"}
    made = [client.create_run("0", start, "x", tags).info.run_id for start in (30, 10, 20, 20)]
    client.set_terminated(made[1], "FAILED")  # it ended, and began before the published one that is open again
    client.set_tag(made[0], "trial.published", "stamp")
    assert runs.trial_run(trial, 1, 0.0) == made[0]
    assert sorted(client.deleted) == sorted(made[1:])
    assert {client.runs[other].data.tags["reason"] for other in made[1:]} == {f"duplicate of {made[0]}"}
    assert {client.runs[other].info.status for other in made[1:]} == {"KILLED"}


@pytest.mark.parametrize(("ended", "stays"), [([], 1), ([0], 0)])
def test_of_several_that_are_not_published_one_that_ended_stays_else_the_first(client: Client, ended: list[int], stays: int) -> None:
    trial = make_trial(1)
    runs = SweepRuns(client, make_plan([trial]))  # type: ignore[arg-type]
    tags = {"trial.key": trial.key, "trial.attempt": "1", "sweep.id": SWEEP_ID, "sweep.role": "trial"}
    made = [client.create_run("0", start, "x", tags).info.run_id for start in (30, 10, 20)]
    for number in ended:
        client.set_terminated(made[number], "FAILED")
    assert runs.trial_run(trial, 1, 0.0) == made[stays]


def test_runs_are_found_on_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(page=2)
    monkeypatch.setattr(projection, "connect", lambda: client)
    plan = make_plan([make_trial(number) for number in range(1, 6)])
    saved(plan, **{f"t{number}": Outcome.OK for number in range(1, 6)})
    project(plan)
    for run in client.with_role("trial"):
        run.info.status = "RUNNING"
    settle(SweepRuns(client, plan), {trial.key for trial in plan.trials}, "its flow died")  # type: ignore[arg-type]
    assert [run.info.status for run in client.with_role("trial")] == ["KILLED"] * 5


def test_runs_that_nobody_works_on_are_ended(client: Client) -> None:
    trial, gone = make_trial(1), make_trial(2)
    plan = make_plan([trial], superseded=[Superseded(key=gone.key, by=trial.key, why="code changed (a -> b)")])
    runs = SweepRuns(client, plan)  # type: ignore[arg-type]
    made = {(one.key, attempt): runs.trial_run(one, attempt, 0.0) for one, attempt in ((trial, 10), (trial, 1), (trial, 2), (gone, 1))}
    client.set_terminated(made[trial.key, 2], "FINISHED")
    settle(runs, {trial.key}, "its flow died")
    told = {name: (client.runs[run].info.status, client.runs[run].data.tags.get("reason")) for name, run in made.items()}
    assert told == {
        (trial.key, 1): ("FAILED", "attempt 1 was followed by 10"),
        (trial.key, 2): ("FINISHED", None),
        (trial.key, 10): ("KILLED", "its flow died"),
        (gone.key, 1): ("KILLED", f"superseded by {trial.key}: code changed (a -> b)"),
    }
    assert client.deleted == [made[gone.key, 1]]


@pytest.mark.parametrize(("journal", "ended_s"), [("whole", 8.5), ("gone", 0.0), ("damaged", 0.0)])
def test_a_discarded_attempt_ends_with_its_last_record_and_says_what_it_is(client: Client, journal: str, ended_s: float) -> None:
    """Its run ended with the sweep, and looked like a trial that had failed."""
    trial, begin = make_trial(1), 1_700_000_000.0
    runs = SweepRuns(client, plan := make_plan([trial]))  # type: ignore[arg-type]
    path = saved(plan).trial_dir(trial.key) / "journal.jsonl"
    if journal != "gone":
        path.parent.mkdir(parents=True, exist_ok=True)
        lines, crc = [], 0
        for attempt in (1, 2):
            for record in ({"kind": "attempt", "t": begin, "attempt": attempt}, {"kind": "note", "t": begin + 8.5 * attempt}):
                line, crc = encode(record, crc)
                lines.append(line)
        path.write_bytes(b"".join(lines))
    if journal == "damaged":
        path.write_bytes(path.read_bytes().replace(b'"note"', b'"nope"'))
    first, second = (runs.trial_run(trial, attempt, begin) for attempt in (1, 2))
    client.set_terminated(second, "FINISHED")
    run = client.runs[first]
    for _ in range(2):  # a settling that MLflow's outage cut short is repeated
        run.info.status = "RUNNING"
        settle(runs, {trial.key}, "its flow died")
        run.info.run_name = run.data.tags["mlflow.runName"]  # as MLflow does
    assert (run.info.status, run.info.end_time) == ("FAILED", 1_700_000_000_000 + round(1000 * ended_s))
    said = {"trial.outcome": "discarded", "trial.discarded": "true", "mlflow.runName": f"{trial.name} · attempt 1"}
    assert said.items() <= run.data.tags.items() and run.data.tags["reason"] == "attempt 1 was followed by 2"
    assert "trial.discarded" not in client.runs[second].data.tags


def test_a_key_that_was_superseded_and_is_wanted_again_is_kept(client: Client) -> None:
    trial = make_trial(1)
    plan = make_plan([trial], superseded=[Superseded(key=trial.key, by="other", why="code changed and changed back")])
    runs = SweepRuns(client, plan)  # type: ignore[arg-type]
    runs.trial_run(trial, 1, 0.0)
    settle(runs, {trial.key}, "its flow died")
    assert client.deleted == []


def test_an_experiment_that_somebody_else_creates_just_then_is_used(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    create = client.create_experiment

    def too_late(name: str, artifact_location: str | None = None) -> str:
        create(name)
        raise ValueError("exists")

    monkeypatch.setattr(client, "create_experiment", too_late)
    assert SweepRuns(client, make_plan([make_trial(1)])).experiment_id == "0"  # type: ignore[arg-type]
    monkeypatch.setattr(client, "get_experiment_by_name", lambda name: None)
    with pytest.raises(ValueError, match="exists"):
        SweepRuns(client, make_plan([make_trial(1)]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("uri", "local"),
    [("sqlite:////x.db", True), ("http://127.0.0.1:5000", True), ("http://localhost:5000", True), ("http://mlflow.example:5000", False)],
)
def test_artifacts_of_a_server_elsewhere_are_not_put_here(client: Client, monkeypatch: pytest.MonkeyPatch, uri: str, local: bool) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    SweepRuns(client, make_plan([make_trial(1)]))  # type: ignore[arg-type]
    location = client.experiments["made_up"].location
    assert (location is not None and location.startswith("file://") and location.endswith("runs/mlartifacts/made_up")) == local


# --- damage and outages


def test_a_damaged_journal_is_said_after_all_the_others_were_published(client: Client) -> None:
    plan = make_plan([make_trial(1), make_trial(2)])
    store = saved(plan, t1=Outcome.OK, t2=Outcome.OK)
    path = store.trial_dir(plan.trials[0].key) / "journal.jsonl"
    write_journal(path.parent, 1, STEPS)
    path.write_bytes(path.read_bytes().replace(b'"loss":2.0', b'"loss":1.0'))
    with pytest.raises(JournalError, match=path.name):
        project(plan)
    assert [run.data.tags["trial.key"] for run in client.with_role("trial")] == [plan.trials[1].key]
    assert client.with_role("parent")[0].info.status == "FINISHED"


class Waits:
    """In place of the module `time`."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@pytest.mark.parametrize(("wait_s", "slept"), [(0.5, []), (1, [1]), (2.9, [1]), (3, [1, 2]), (40, [1, 2, 4, 8, 10, 10])])
def test_a_server_that_does_not_answer_is_waited_for_and_then_its_words_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_s: float, slept: list[float]
) -> None:
    waits = Waits()
    monkeypatch.setattr(projection, "time", waits)

    def fail() -> None:
        raise ConnectionError("no answer\nand more")

    monkeypatch.setattr(projection, "connect", fail)
    plan = make_plan([make_trial(1)])
    told: list[str] = []
    with pytest.raises(ConnectionError, match="no answer"), caplog.at_level(logging.WARNING):
        publish_sweep(saved(plan), plan, [], None, wait_s=wait_s, waiting=told.append)
    assert waits.slept == slept
    assert told == [f"does not answer (no answer); it is asked for up to {wait_s:.0f} s"] * len(slept)
    assert [record.getMessage() for record in caplog.records] == [
        f"MLflow does not answer (no answer); again in {pause:.0f} s" for pause in slept
    ]


@pytest.mark.parametrize("error", [RuntimeError("(sqlite3.OperationalError) database or disk is full"), OSError(errno.ENOSPC, "No space")])
def test_a_full_disk_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A sweep on one took a minute longer to end."""
    waits = Waits()
    monkeypatch.setattr(projection, "time", waits)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(projection, "_publish_once", fail)
    plan = make_plan([make_trial(1)])
    with pytest.raises(type(error)):
        publish_sweep(saved(plan), plan, [], None, wait_s=60)
    assert waits.slept == []


def test_a_damaged_database_is_not_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits()
    monkeypatch.setattr(projection, "time", waits)
    plan = make_plan([make_trial(1)])
    saved(plan, t1=Outcome.OK)
    path = runs_root() / "mlflow.db"

    def fail(*_: object) -> None:
        path.write_bytes(b"no database" + bytes(4096))
        raise RuntimeError("(sqlite3.DatabaseError) file is not a database")

    monkeypatch.setattr(projection, "_publish_once", fail)
    with pytest.raises(DamagedFile, match=f"^{path} is damaged"):
        project(plan)
    assert waits.slept == []


def test_a_server_that_comes_back_gets_everything(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "time", Waits())
    refused = [ConnectionError("a"), ConnectionError("b")]

    def answer() -> Client:
        if refused:
            raise refused.pop()
        return client

    monkeypatch.setattr(projection, "connect", answer)
    plan = make_plan([make_trial(1)])
    found = publish_sweep(saved(plan, t1=Outcome.OK), plan, [SweepStore(SWEEP_ID).dir / "plan.json"], None, wait_s=60)
    assert list(found.trials) == [plan.trials[0].key]
    assert client.artifacts[found.parent] == ["plan.json"]


def test_links_lead_to_the_server_or_to_where_it_will_be(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan([make_trial(1)])
    saved(plan, t1=Outcome.OK)
    monkeypatch.setenv("SWEEPBENCH_MLFLOW_PORT", "5099")
    found = project(plan)
    assert (found.base, found.served) == ("http://127.0.0.1:5099/", False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.example/")
    found = project(plan)
    assert (found.base, found.served) == ("http://mlflow.example/", True)
    assert all(link.startswith("http://mlflow.example/#/experiments/0/runs/run") for link in found.trials.values())
    assert found.table.startswith("http://mlflow.example/#") and found.charts.startswith("http://mlflow.example/#")


def test_the_sweeps_run_has_the_share_of_the_held_time_that_was_measured_without_emulated_trials() -> None:
    one, emulated = make_trial(1), make_trial(2, emulated=True)
    store = saved(make_plan([one, emulated]), t1=Outcome.OK, t2=Outcome.OK)
    assert held_metrics(store) == {}, "no report has been written"
    write_held(store, emulated)
    keep_held(load_sweep(store.dir))
    assert held_metrics(store) == {}, "nothing of it was measured"
    write_held(store, one)
    keep_held(load_sweep(store.dir))
    assert held_metrics(store) == {"held_s": pytest.approx(10.0), "held_share_measured": pytest.approx(0.4)}
