"""What must hold after a kill and a `sweep resume`, read from the files and databases themselves, not through what wrote them.

`violations` gives a sentence for each thing that does not hold.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.journal.journal import Journal, JournalFollower
from cluster.trial_layout import DEVICE_STATE, JOURNAL, RESULT, STATUS
from experiments.config.errors import UserError
from experiments.trial import Outcome, Trial
from tasks.sweep.store import Plan, SweepStore
from tasks.sweep.trial_record import read_record
from tests.kill.command_line import shown
from tests.process_support import commands_of

_OPEN = ("RUNNING", "PENDING", "CANCELLING", "PAUSED")  # states of Prefect's that are no end
_VALUES = {  # metric -> its value of a step of the journal
    "loss": lambda step: step["loss"],
    "step_time_s": lambda step: step["total_s"],
    "data_wait_s": lambda step: step["data_wait_s"],
    "samples_per_s": lambda step: step["samples"] / step["total_s"],
}


@dataclass(frozen=True)
class Finished:
    """What of each trial had ended by a moment.

    `files`: hashes of the files of trials with a final result, by trial key and file name. `again`: trials that ended and are to run again.
    """

    files: dict[str, dict[str, str]] = field(default_factory=dict)
    again: frozenset[str] = frozenset()


def finished(store: SweepStore) -> Finished:
    """The trials that have a final result now, with what no later command may change."""
    results = {key: store.result(key) for key in _keys(store)}
    final = [key for key, result in results.items() if result is not None and result.outcome.final]
    files = {key: {name: _hash(store.trial_dir(key) / name) for name in (JOURNAL, DEVICE_STATE, RESULT)} for key in final}
    return Finished(files, frozenset(key for key, result in results.items() if result is not None and not result.outcome.final))


def _keys(store: SweepStore) -> list[str]:
    return [trial.key for trial in store.load_plan().trials] if store.exists() else []


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "absent"


def violations(store: SweepStore, before: Finished, *, steps: int, hit: Collection[str] = (), prefect: bool = True) -> list[str]:
    """What does not hold of a sweep that is to be complete. `before`: what had ended before the last command. `steps`: of each trial.

    `hit`: keys of trials that the kill may have ended. They, and those that the last command was to run again, may have two attempts.
    `prefect`: whether Prefect's own records must have ended too.
    """
    try:
        plan = store.load_plan()
    except UserError as error:
        return [f"plan: {error}"]
    found = [*_of_status(store), *_of_mlflow(store, plan)]
    for trial in plan.trials:
        found += [
            f"trial {trial.key}: {problem}"
            for problem in _of_trial(store, trial, before, steps, 2 if trial.key in {*hit, *before.again} else 1)
        ]
    if prefect:
        found += _of_prefect(store)
    return found


def _of_status(store: SweepStore) -> Iterator[str]:
    try:
        status = json.loads((store.dir / STATUS).read_text())["status"]
    except (OSError, ValueError, KeyError) as error:
        yield f"{STATUS}: {error}"
        return
    if status != 0:
        yield f"{STATUS} says {status}"


# --- the journals


def _of_trial(store: SweepStore, trial: Trial, before: Finished, steps: int, most: int) -> Iterator[str]:
    folder = store.trial_dir(trial.key)
    try:
        record = read_record(trial.key, folder)
    except UserError as error:
        yield str(error)
        return
    if record.result is None:
        yield "it has no result"
        return
    if record.result.outcome is not Outcome.OK:
        yield f"it ended as {record.result.outcome} ({record.result.reason})"
    if record.result.journal is None:
        yield f"{RESULT} does not say what its journal holds"
    if [step["step"] for step in record.journal.steps] != list(range(1, steps + 1)):
        yield f"its journal has {len(record.journal.steps)} steps, not each of 1 to {steps} once"
    if list(folder.glob("damaged-a*")):
        yield "its record was found damaged"
    numbers = _attempts(folder / JOURNAL)
    if numbers != sorted(set(numbers)) or max(numbers, default=0) > most:
        yield f"its journal has attempts {numbers}, and {most} may have been started"
    for name, hashed in before.files.get(trial.key, {}).items():
        if _hash(folder / name) != hashed:
            yield f"{name} changed after the trial had finished"


def _attempts(journal: Path) -> list[int]:
    follower = JournalFollower(journal)
    follower.poll()
    return [section.attempt for section in follower.sections]


# --- MLflow


def _of_mlflow(store: SweepStore, plan: Plan) -> Iterator[str]:
    """Each step of each trial once in MLflow's database and equal to the journal; no run open, none too many."""
    with closing(sqlite3.connect(f"file:{store.dir.parent / 'mlflow.db'}?mode=ro", uri=True)) as database:
        tags: dict[str, dict[str, str]] = defaultdict(dict)
        for run, name, value in database.execute("select run_uuid, key, value from tags"):
            tags[run][name] = value
        status = dict(database.execute("select run_uuid, status from runs where lifecycle_stage = 'active'"))
        mine = {run: own for run, own in tags.items() if own.get("sweep.id") == store.sweep_id and run in status}
        parents = [run for run, own in mine.items() if own["sweep.role"] == "parent"]
        if [status[run] for run in parents] != ["FINISHED"]:
            yield f"MLflow: the sweep's own runs are {[status[run] for run in parents]}, not one FINISHED"
        runs = {run: own for run, own in mine.items() if own["sweep.role"] == "trial"}
        if strange := {own["trial.key"] for own in runs.values()} - {trial.key for trial in plan.trials}:
            yield f"MLflow: runs of trials that are not in the plan: {sorted(strange)}"
        for (key, attempt), count in Counter((own["trial.key"], own["trial.attempt"]) for own in runs.values()).items():
            if count > 1:
                yield f"MLflow: {count} runs of attempt {attempt} of trial {key}"
        for run, own in runs.items():
            if status[run] not in ("FINISHED", "FAILED", "KILLED"):
                yield f"MLflow: attempt {own['trial.attempt']} of trial {own['trial.key']} is {status[run]}"
            elif status[run] != "FINISHED" and not own.get("reason"):
                yield f"MLflow: attempt {own['trial.attempt']} of trial {own['trial.key']} is {status[run]} without a reason"
        for trial in plan.trials:
            ended = [run for run, own in runs.items() if own["trial.key"] == trial.key and status[run] == "FINISHED"]
            yield from (f"MLflow: trial {trial.key}: {problem}" for problem in _of_run(store, trial, ended, mine, database))


def _of_run(
    store: SweepStore, trial: Trial, ended: list[str], tags: dict[str, dict[str, str]], database: sqlite3.Connection
) -> Iterator[str]:
    if len(ended) != 1:
        yield f"{len(ended)} FINISHED runs, not one"
        return
    (run,) = ended
    try:
        record = read_record(trial.key, store.trial_dir(trial.key))
    except UserError:
        return  # said of the trial itself
    if record.result is None:
        return
    if tags[run]["trial.attempt"] != str(record.result.attempt):
        yield f"its run is of attempt {tags[run]['trial.attempt']}, its result of attempt {record.result.attempt}"
    if "trial.published" not in tags[run]:
        yield "its run is not marked as whole"
    rows: dict[str, list[Any]] = defaultdict(list)
    for name, *row in database.execute("select key, step, timestamp, value from metrics where run_uuid = ? and is_nan = 0", (run,)):
        rows[name].append(tuple(row))
    yield from _differences(rows, record.journal)


def _differences(rows: dict[str, list[Any]], journal: Journal) -> Iterator[str]:
    for name, value in _VALUES.items():
        expected = sorted((step["step"], round(step["t"] * 1000), value(step)) for step in journal.steps)
        if sorted(rows[name]) != expected:
            yield f"{name} has {len(rows[name])} rows, {len(set(rows[name]) & set(expected))} of them among the journal's {len(expected)}"


# --- Prefect and processes


def _of_prefect(store: SweepStore) -> Iterator[str]:
    """No flow run of the sweep is open: as Prefect's own database has it."""
    path = store.dir.parent / ".prefect" / "prefect.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        states = dict(database.execute("select id, state_type from flow_run"))
    yield from (f"Prefect: flow run {run} is {states[run]}" for run in store.flow_runs() if states.get(run) in _OPEN)


def left_running(store: SweepStore) -> list[str]:
    """Command lines of processes of the sweep's trials."""
    return [shown(command) for key in _keys(store) for command in commands_of(key).values()]
