"""Decide the result of an attempt from what the flow knows about its end. Uses no clock, no files and no pool."""

from __future__ import annotations

from dataclasses import dataclass

from cluster import disk_errors
from cluster.journal.journal import Journal
from cluster.journal.replication import STORAGE_LOST
from cluster.launchers import Status
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.failure_policy import PREEMPTED

_KILLED = 128  # exit statuses from here on mean a signal, as in a shell: Ray reports 137 for SIGKILL
# phrases in Ray's message about a job that is over -> kind of failure
_KINDS = {"running low on memory": "host_oom", "preempt": PREEMPTED, "drain": PREEMPTED}


@dataclass(frozen=True)
class AttemptEnd:
    """What the flow knew about an attempt when it stopped following it.

    The cause is one of `exited`, `unplaced`, `unreachable` and `stalled_s`, or else `stopped`. The other fields are further facts.
    """

    exited: Status | None = None  # its launcher reports that it is over
    unplaced: str | None = None  # its cluster has not started it for too long: why
    unreachable: str | None = None  # its pool or storage did not answer for too long: the last error
    stalled_s: float | None = None  # it runs and has written no journal record for this long, s
    stopped: str | None = None  # why the sweep was asked to stop
    worker_result: TrialResult | None = None  # the result.json of its worker
    folder: str | None = None  # where its worker writes


def judge(end: AttemptEnd, trial: Trial, attempt: int, journal: Journal, now: float) -> TrialResult:
    """The attempt's result: its worker's if there is one, else one derived from `end`. `now`: Unix time, s.

    A worker that is stopped may still report that it crashed or was lost. The stop then explains its end.
    """
    result = end.worker_result
    still_runs = end.exited is None and end.unreachable is None and end.stalled_s is None
    if result is None or (still_runs and not result.outcome.final):
        outcome, reason = _without_worker(end, journal)
        result = flow_result(trial, attempt, outcome, reason, now, journal)
    if end.stopped is not None and result.outcome in (Outcome.CRASHED, Outcome.INFRA):
        return flow_result(trial, attempt, Outcome.CANCELLED, end.stopped, now, journal)
    return result


def flow_result(trial: Trial, attempt: int, outcome: Outcome, reason: str, now: float, journal: Journal | None = None) -> TrialResult:
    """The flow's own result of an attempt whose worker wrote none. `journal`: the attempt's records so far. `now`: Unix time, s."""
    return TrialResult(
        key=trial.key,
        attempt=attempt,
        outcome=outcome,
        reason=reason,
        started_at=(journal.started_at if journal else None) or now,
        finished_at=now,
        emulated=trial.emulated or bool(journal and journal.environment.get("emulated")),
        environment=journal.environment if journal else {},
    )


def _without_worker(end: AttemptEnd, journal: Journal) -> tuple[Outcome, str]:
    """Outcome and reason of an attempt without a result of its worker."""
    if end.exited is not None:
        return _exited(end.exited, end.folder)
    if end.unplaced is not None:
        return Outcome.INFRA, end.unplaced
    if end.unreachable is not None:
        return Outcome.INFRA, f"worker lost: {end.unreachable}"
    if end.stalled_s is not None:
        at = f"after step {journal.steps[-1]['step']}" if journal.steps else "before its first step"
        return Outcome.HANG, f"no progress for {end.stalled_s:g} s {at}"
    assert end.stopped is not None, "nothing ended the attempt"
    return Outcome.CANCELLED, end.stopped


def _exited(status: Status, folder: str | None) -> tuple[Outcome, str]:
    """Outcome and reason of a process that ended without a result."""
    why, code = status.message or "it ended without a result", status.exit_code
    for phrase, kind in _KINDS.items():  # Ray lost the trial's process, which could not report this itself
        if phrase in why:
            return Outcome.INFRA, f"{kind}: {why}"
    if disk := next((one for one in disk_errors.KINDS if code == one.exit_status), None):
        where = f" of {folder}" if folder else ", where the trial writes,"
        return Outcome.INFRA, f"{disk.kind}: {disk.what} on the disk{where}: the trial's result could not be written; {disk.remedy}"
    if code == STORAGE_LOST:
        return Outcome.INFRA, f"storage_lost: {why}"
    if 0 < (code or 0) < _KILLED:  # its own error, before it could write a result
        return Outcome.CRASHED, why
    return Outcome.INFRA, f"worker lost: {why}"
