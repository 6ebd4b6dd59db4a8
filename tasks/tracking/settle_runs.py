"""Close every MLflow run of a sweep without an active attempt: older attempts, superseded trials, runs that a dead flow left RUNNING."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalFollower
from cluster.trial_layout import JOURNAL
from tasks.sweep.store import Superseded, SweepStore
from tasks.tracking.runs import SweepRuns
from tasks.tracking.values import log_tags, milliseconds
from tasks.tracking.views import DISCARDED

if TYPE_CHECKING:
    from mlflow.entities import Run


@dataclass(frozen=True)
class Settlement:
    """What to do with a run. `status` None: it keeps its status. `discarded`: a later attempt took its place."""

    reason: str
    status: str | None
    delete: bool = False
    discarded: bool = False


def settle(runs: SweepRuns, keys: Collection[str], reason: str) -> None:
    """Settle the sweep's runs. `keys`: the trials in its current plan. `reason`: why their last attempts did not end."""
    attempts = runs.attempts()
    latest = latest_attempts(attempts)
    superseded = {entry.key: entry for entry in runs.plan.superseded if entry.key not in keys}
    for run in attempts:
        settlement = settlement_of(run, latest, superseded, reason)
        if settlement is None:
            continue
        runs.client.set_tag(run.info.run_id, "reason", settlement.reason)
        if settlement.discarded:
            _discard(runs, run, settlement)
        elif settlement.status:
            runs.client.set_terminated(run.info.run_id, settlement.status)
        if settlement.delete:
            runs.client.delete_run(run.info.run_id)


def _discard(runs: SweepRuns, run: Run, settlement: Settlement) -> None:
    """End the run of an attempt that another took the place of when the attempt ended: a duration up to now is none of its own."""
    key, number = _identity(run)
    tags = {"trial.outcome": "discarded", DISCARDED: "true"}
    if number == 1:  # later attempts have it in their names
        tags["mlflow.runName"] = f"{run.info.run_name.removesuffix(' · attempt 1')} · attempt 1"
    log_tags(runs.client, run.info.run_id, tags)
    seconds = _last_record(SweepStore(runs.plan.sweep_id).trial_dir(key) / JOURNAL, number)
    ended = run.info.start_time if seconds is None else max(run.info.start_time, milliseconds(seconds))
    runs.client.set_terminated(run.info.run_id, settlement.status, end_time=ended)


def _last_record(path: Path, attempt: int) -> float | None:
    """When the attempt wrote its last record (Unix time, s); None where its journal is gone or damaged."""
    last, now = None, 0
    try:
        for record in JournalFollower(path).poll():
            now = record["attempt"] if record["kind"] == "attempt" else now
            last = float(record["t"]) if now == attempt else last
    except JournalError:
        return None
    return last


def latest_attempts(attempts: Iterable[Run]) -> dict[str, int]:
    """Trial key -> number of the last attempt."""
    latest: dict[str, int] = {}
    for run in attempts:
        key, number = _identity(run)
        latest[key] = max(latest.get(key, 0), number)
    return latest


def settlement_of(run: Run, latest: Mapping[str, int], superseded: Mapping[str, Superseded], reason: str) -> Settlement | None:
    """What to do with the run of an attempt; None if it has ended and its trial is not superseded."""
    key, number = _identity(run)
    running = run.info.status == "RUNNING"
    if entry := superseded.get(key):
        return Settlement(f"superseded by {entry.by}: {entry.why}", "KILLED" if running else None, delete=True)
    if not running:
        return None
    if number < latest[key]:
        return Settlement(f"attempt {number} was followed by {latest[key]}", "FAILED", discarded=True)
    return Settlement(reason, "KILLED")


def _identity(run: Run) -> tuple[str, int]:
    return run.data.tags["trial.key"], int(run.data.tags["trial.attempt"])
