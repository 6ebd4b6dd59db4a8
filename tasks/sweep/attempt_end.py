"""What an attempt ended as, from what is known of it: no clock, no files, no pool."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.journal.journal import Journal
from cluster.journal.replication import STORAGE_LOST
from cluster.launchers import Status
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.failure_policy import PREEMPTED

_KILLED = 128  # a shell's exit status for a signal, and more: Ray says 137 for SIGKILL
_KINDS = {"running low on memory": "host_oom", "preempt": PREEMPTED, "drain": PREEMPTED}  # words of Ray about a job that is over


@dataclass(frozen=True)
class AttemptEnd:
    """Why an attempt is followed no longer. One of `exited`, `unreachable` and `stalled_s`, or else only `stopped`, is why; the rest is
    what else was known then."""

    exited: Status | None = None  # its launcher says that it is over
    unreachable: str | None = None  # it was not heard of for too long: what its pool or storage said last
    stalled_s: float | None = None  # it runs, and has written no new record for this long, s
    stopped: str | None = None  # why the sweep was asked to stop
    published: TrialResult | None = None  # what its worker published


def judge(end: AttemptEnd, trial: Trial, attempt: int, journal: Journal, now: float) -> TrialResult:
    """The attempt's result: its worker's where there is one, else what its end says. `now`: Unix time, s.

    A worker that is stopped may still say that it crashed, or that it was lost: then the stop explains its end.
    """
    result = end.published
    still_runs = end.exited is None and end.unreachable is None and end.stalled_s is None
    if result is None or (still_runs and not result.outcome.final):
        outcome, reason = _without_worker(end, journal)
        result = made_here(trial, attempt, outcome, reason, now, journal)
    if end.stopped is not None and result.outcome in (Outcome.CRASHED, Outcome.INFRA):
        return made_here(trial, attempt, Outcome.CANCELLED, end.stopped, now, journal)
    return result


def made_here(trial: Trial, attempt: int, outcome: Outcome, reason: str, now: float, journal: Journal | None = None) -> TrialResult:
    """The result of an attempt whose worker could not publish one. `journal`: as far as it came."""
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
    """Outcome and reason of an attempt that published nothing."""
    if end.exited is not None:
        return _exited(end.exited)
    if end.unreachable is not None:
        return Outcome.INFRA, f"worker lost: {end.unreachable}"
    if end.stalled_s is not None:
        at = f"after step {journal.steps[-1]['step']}" if journal.steps else "before its first step"
        return Outcome.HANG, f"no progress for {end.stalled_s:g} s {at}"
    assert end.stopped is not None, "nothing ended the attempt"
    return Outcome.CANCELLED, end.stopped


def _exited(status: Status) -> tuple[Outcome, str]:
    """Outcome and reason of a process that ended without a word."""
    why, code = status.message or "it ended without a result", status.exit_code
    for words, kind in _KINDS.items():  # the trial's process was among what Ray lost, and could not say so itself
        if words in why:
            return Outcome.INFRA, f"{kind}: {why}"
    if code == STORAGE_LOST:
        return Outcome.INFRA, f"storage_lost: {why}"
    if 0 < (code or 0) < _KILLED:  # its own error, before it could publish one
        return Outcome.CRASHED, why
    return Outcome.INFRA, f"worker lost: {why}"
