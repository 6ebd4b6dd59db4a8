"""Close every MLflow run of a sweep without an active attempt: older attempts, superseded trials, runs that a dead flow left RUNNING."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.sweep.store import Superseded
from tasks.tracking.runs import SweepRuns

if TYPE_CHECKING:
    from mlflow.entities import Run


@dataclass(frozen=True)
class Settlement:
    """What to do with a run. `status` None: it keeps its status."""

    reason: str
    status: str | None
    delete: bool = False


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
        if settlement.status:
            runs.client.set_terminated(run.info.run_id, settlement.status)
        if settlement.delete:
            runs.client.delete_run(run.info.run_id)


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
        return Settlement(f"attempt {number} was followed by {latest[key]}", "FAILED")
    return Settlement(reason, "KILLED")


def _identity(run: Run) -> tuple[str, int]:
    return run.data.tags["trial.key"], int(run.data.tags["trial.attempt"])
