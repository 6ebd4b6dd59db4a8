"""The check after a kill finds each thing that may not hold, and nothing where all holds."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pytest

from cluster.journal.journal import JournalWriter, read_journal
from cluster.process_marks import MARK
from experiments.atomic_file import atomic_write
from experiments.trial import Outcome, Trial
from tasks.sweep.store import SweepStore
from tests.kill import check
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved

STEPS = 4
STEP = {"measured": True, "samples": 8, "total_s": 0.25, "data_wait_s": 0.125}
TABLES = """
create table runs (run_uuid text, status text, lifecycle_stage text);
create table tags (run_uuid text, key text, value text);
create table metrics (key text, value real, timestamp integer, run_uuid text, step integer, is_nan integer);
"""
_FIRST = "0000000000000001"


def measure(store: SweepStore, trial: Trial, attempt: int = 1, outcome: Outcome = Outcome.OK, steps: int = STEPS) -> None:
    """What an attempt leaves on disk."""
    path = store.trial_dir(trial.key) / "journal.jsonl"
    with JournalWriter(path, attempt, interval=60, trial=trial.key) as journal:
        for number in range(1, steps + 1):
            journal.append("step", t=100.0 + number, step=number, loss=1.0 / number, **STEP)
    store.save_result(make_result(trial, outcome, attempt=attempt).model_copy(update={"journal": read_journal(path).mark}))


def publish(database: sqlite3.Connection, store: SweepStore, run: str, status: str, **tags: str) -> None:
    database.execute("insert into runs values (?, ?, 'active')", (run, status))
    for name, value in {"sweep.id": store.sweep_id, **{name.replace("_", "."): value for name, value in tags.items()}}.items():
        database.execute("insert into tags values (?, ?, ?)", (run, name, value))


def publish_trial(database: sqlite3.Connection, store: SweepStore, trial: Trial) -> None:
    publish(
        database, store, f"run-{trial.key}", "FINISHED", sweep_role="trial", trial_key=trial.key, trial_attempt="1", trial_published="x"
    )
    for step in read_journal(store.trial_dir(trial.key) / "journal.jsonl").steps:
        rows = {"loss": step["loss"], "step_time_s": 0.25, "data_wait_s": 0.125, "samples_per_s": 32.0}
        for name, value in rows.items():
            row = (name, value, round(step["t"] * 1000), f"run-{trial.key}", step["step"], 0)
            database.execute("insert into metrics values (?, ?, ?, ?, ?, ?)", row)


@pytest.fixture
def store() -> SweepStore:
    """A sweep of two trials that ended well, with its databases."""
    plan = make_plan([make_trial(1), make_trial(2)])
    made = saved(plan)
    for trial in plan.trials:
        measure(made, trial)
    made.save_status(0, "all is well")
    made.add_flow_run("flow-1")
    with closing(mlflow(made)) as database, database:
        database.executescript(TABLES)
        publish(database, made, "parent", "FINISHED", sweep_role="parent")
        for trial in plan.trials:
            publish_trial(database, made, trial)
    (made.dir.parent / ".prefect").mkdir()
    with closing(prefect(made)) as database, database:
        database.execute("create table flow_run (id text, state_type text)")
        database.execute("insert into flow_run values ('flow-1', 'COMPLETED'), ('of-another-sweep', 'RUNNING')")
    return made


def mlflow(store: SweepStore) -> sqlite3.Connection:
    return sqlite3.connect(store.dir.parent / "mlflow.db")


def prefect(store: SweepStore) -> sqlite3.Connection:
    return sqlite3.connect(store.dir.parent / ".prefect" / "prefect.db")


def violations(store: SweepStore, before: check.Finished | None = None, hit: tuple[str, ...] = ()) -> list[str]:
    return check.violations(store, before or check.Finished(), steps=STEPS, hit=hit)


def test_a_whole_sweep_has_none(store: SweepStore) -> None:
    assert violations(store, check.finished(store)) == []


def in_mlflow(statement: str) -> Callable[[SweepStore], None]:
    def change(store: SweepStore) -> None:
        with closing(mlflow(store)) as database, database:
            assert database.execute(statement).rowcount > 0, "the violation is there"

    return change


def remove(name: str) -> Callable[[SweepStore], None]:
    return lambda store: (store.trial_dir(_FIRST) / name).unlink()


def with_result(outcome: Outcome) -> Callable[[SweepStore], None]:
    def change(store: SweepStore) -> None:
        result = store.result(_FIRST)
        assert result is not None
        store.save_result(result.model_copy(update={"outcome": outcome, "reason": "made up"}))

    return change


def steps_missing(store: SweepStore) -> None:
    (store.trial_dir(_FIRST) / "journal.jsonl").unlink()
    measure(store, store.load_plan().trials[0], steps=STEPS - 1)


def second_attempt(store: SweepStore) -> None:
    measure(store, store.load_plan().trials[0], attempt=2)


def without_mark(store: SweepStore) -> None:
    store.save_result(make_result(store.load_plan().trials[0]))


def cut_journal(store: SweepStore) -> None:
    path = store.trial_dir(_FIRST) / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def aside(store: SweepStore) -> None:
    (store.trial_dir(_FIRST) / "damaged-a1").mkdir()


def prefect_open(store: SweepStore) -> None:
    with closing(prefect(store)) as database, database:
        database.execute("update flow_run set state_type = 'RUNNING' where id = 'flow-1'")


def another_status(store: SweepStore) -> None:
    atomic_write(store.dir / "status.json", json.dumps({"status": 1, "message": "incomplete", "at": 1.0}))


_RUN = f"run-{_FIRST}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (another_status, "status.json says 1"),
        (remove("result.json"), f"trial {_FIRST}: it has no result"),
        (with_result(Outcome.INFRA), f"trial {_FIRST}: it ended as infra (made up)"),
        (without_mark, f"trial {_FIRST}: result.json does not say what its journal holds"),
        (steps_missing, f"trial {_FIRST}: its journal has 3 steps, not each of 1 to 4 once"),
        (second_attempt, f"trial {_FIRST}: its journal has attempts [1, 2], and 1 may have been started"),
        (cut_journal, "ends before its last attempt was closed, and result.json counts"),
        (aside, f"trial {_FIRST}: its record was found damaged"),
        (prefect_open, "Prefect: flow run flow-1 is RUNNING"),
        (in_mlflow(f"update runs set status = 'RUNNING' where run_uuid = '{_RUN}'"), f"MLflow: attempt 1 of trial {_FIRST} is RUNNING"),
        (in_mlflow("update runs set status = 'RUNNING' where run_uuid = 'parent'"), "the sweep's own runs are ['RUNNING']"),
        (
            in_mlflow(f"update runs set status = 'FAILED' where run_uuid = '{_RUN}'"),
            f"attempt 1 of trial {_FIRST} is FAILED without a reason",
        ),
        (in_mlflow(f"update runs set lifecycle_stage = 'deleted' where run_uuid = '{_RUN}'"), f"trial {_FIRST}: 0 FINISHED runs, not one"),
        (in_mlflow(f"delete from tags where run_uuid = '{_RUN}' and key = 'trial.published'"), "its run is not marked as whole"),
        (in_mlflow(f"update tags set value = '2' where run_uuid = '{_RUN}' and key = 'trial.attempt'"), "its run is of attempt 2"),
        (in_mlflow(f"update tags set value = 'f' where run_uuid = '{_RUN}' and key = 'trial.key'"), "that are not in the plan: ['f']"),
        (in_mlflow(f"delete from metrics where run_uuid = '{_RUN}' and key = 'loss' and step = 3"), "loss has 3 rows, 3 of them among"),
        (in_mlflow("insert into metrics select * from metrics where step = 3"), "loss has 5 rows, 4 of them among the journal's 4"),
        (in_mlflow("update metrics set value = 0.251 where key = 'step_time_s' and step = 2"), "step_time_s has 4 rows, 3 of them"),
        (in_mlflow("update metrics set timestamp = timestamp + 1 where key = 'loss' and step = 1"), "loss has 4 rows, 3 of them"),
    ],
)
def test_each_violation_is_named(store: SweepStore, change: Callable[[SweepStore], None], said: str) -> None:
    change(store)
    found = violations(store)
    assert any(said in problem for problem in found), found


def test_two_runs_of_one_attempt_and_of_the_sweep_are_too_many(store: SweepStore) -> None:
    trial = store.load_plan().trials[0]
    with closing(mlflow(store)) as database, database:
        publish(database, store, "again", "FINISHED", sweep_role="trial", trial_key=trial.key, trial_attempt="1", trial_published="x")
        publish(database, store, "parent-2", "FINISHED", sweep_role="parent")
    found = violations(store)
    assert f"MLflow: 2 runs of attempt 1 of trial {_FIRST}" in found and f"MLflow: trial {_FIRST}: 2 FINISHED runs, not one" in found
    assert "MLflow: the sweep's own runs are ['FINISHED', 'FINISHED'], not one FINISHED" in found


def test_a_trial_that_was_killed_may_have_two_attempts_and_one_that_had_ended_may_not_change(store: SweepStore) -> None:
    before = check.finished(store)
    assert set(before.files) == {_FIRST, "0000000000000002"} and not before.again
    second_attempt(store)
    result = store.result(_FIRST)
    assert result is not None and result.attempt == 2
    with closing(mlflow(store)) as database, database:
        database.execute("update tags set value = '2' where run_uuid = ? and key = 'trial.attempt'", (_RUN,))
    assert violations(store, hit=(_FIRST,)) == []
    changed = [f"trial {_FIRST}: {name} changed after the trial had finished" for name in ("journal.jsonl", "result.json")]
    assert violations(store, before, hit=(_FIRST,)) == changed


def test_a_trial_that_was_to_run_again_may_have_two_attempts(store: SweepStore) -> None:
    with_result(Outcome.CANCELLED)(store)
    before = check.finished(store)
    assert before.again == {_FIRST} and set(before.files) == {"0000000000000002"}
    second_attempt(store)
    with closing(mlflow(store)) as database, database:
        database.execute("update tags set value = '2' where run_uuid = ? and key = 'trial.attempt'", (_RUN,))
    assert violations(store, before) == []


def test_a_plan_that_is_missing_is_the_only_thing_to_say(store: SweepStore) -> None:
    (store.dir / "plan.json").unlink()
    (found,) = violations(store)
    assert found.startswith("plan: ") and "is missing" in found


def test_a_process_of_a_trial_that_still_runs_is_found(store: SweepStore) -> None:
    assert check.left_running(store) == []
    waits = subprocess.Popen([sys.executable, "-c", "input()"], env={**os.environ, MARK: _FIRST}, stdin=subprocess.PIPE)
    try:
        assert len(check.left_running(store)) == 1
    finally:
        waits.communicate()
