"""Run one trial to a typed outcome: start it on its pool, follow its journal, try again where only the infrastructure failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cluster import launchers
from cluster.journal.journal import Journal, JournalFollower, Record
from cluster.journal.replication import STORAGE_LOST
from cluster.launchers import Launch, Launcher, LaunchError, LaunchRefused, Status
from cluster.trial_layout import JOURNAL, LOG
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.store import SweepStore

_POLL_S = 0.2
_ASK_AGAIN_S = 3.0  # a pool that is down
_TAIL = 4000
_KILLED = 128  # a shell's exit status for a signal, and more: Ray says 137 for SIGKILL

_KINDS = {"running low on memory": "host_oom", "preempt": "preempted", "drain": "preempted"}  # words of Ray about a job that is over

Observer = Callable[[Trial, int, Sequence[Record]], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Policy:
    """How patient the sweep is with a trial; with its pool: see PoolWatch."""

    retries: int = 2  # further attempts after an infrastructure failure
    preemptions: int = 5  # further attempts after a node that was taken back, which is no fault of anybody's
    hang_timeout_s: float = 600.0  # no new journal record for this long


@dataclass(frozen=True)
class TrialRunner:
    """Runs trials of one sweep on one pool. `observe` is given new journal records, with the trial and the attempt; `say` a word on what
    a trial waits for, before it has any."""

    store: SweepStore
    launcher: Launcher
    policy: Policy
    stop: threading.Event
    observe: Observer
    pool: PoolWatch
    say: Callable[[Trial, str], None] = lambda trial, state: None

    def run(self, trial: Trial) -> TrialResult:
        """The trial's result, also published as result.json. Attempts that only the infrastructure ended are made again, from the start.

        An attempt that another flow left is followed to its end, not repeated. Raises JournalError if the journal was changed by others.
        """
        attempts, preemptions, first = 0, 0, True
        while True:
            if (late := self.store.result(trial.key)) and late.outcome.final:  # its worker published it after it was given up here
                return late
            before = launchers.load(self._folder(trial))
            attempt = (before.attempt if before else 0) + 1
            try:
                launch = self._left(trial, before) if before else None
                followed = launch is not None
                if launch is None and not self.stop.is_set():
                    launch = self._start(trial, attempt)
            except LaunchError as error:
                if (late := self.store.result(trial.key)) and late.outcome.final:
                    return late
                return self._publish(_without_worker(trial, attempt, Outcome.INFRA, f"not started: {error}"))
            if launch is None:
                return self._publish(_without_worker(trial, attempt, Outcome.CANCELLED, self._why_stopped()))
            result = self._publish(self._follow(trial, launch))
            if not (first and followed):  # what became of a dead flow's attempt costs no retry
                preempted = (result.reason or "").startswith("preempted")
                attempts, preemptions = attempts + (not preempted), preemptions + preempted
            first = False
            spent = attempts > self.policy.retries or preemptions > self.policy.preemptions
            if result.outcome is not Outcome.INFRA or spent or self.stop.is_set():
                return result

    def _left(self, trial: Trial, launch: Launch) -> Launch | None:
        """The trial's last launch if its end is not known: another flow died over it, or gave it up while its pool did not answer.

        A pool that does not answer now is waited for: what it runs must not be run twice. Raises LaunchError, None also for a stopped
        sweep.
        """
        result = self._worker_result(launch)
        if result is None:
            return launch
        status = self._patiently(lambda: self.launcher.status(launch), trial)
        if status is None or not status.running:
            return None
        if result.outcome is Outcome.INFRA:
            return launch
        self._patiently(lambda: self.launcher.stop(launch), trial)  # it was cancelled, and its pool could not be told
        return None

    def _start(self, trial: Trial, attempt: int) -> Launch | None:
        """Start an attempt, waiting for a pool that is down; None if the sweep was stopped meanwhile. Raises LaunchError."""
        folder = self._folder(trial)
        JournalFollower(folder / JOURNAL).poll()  # raises rather than let a worker append to a journal that was changed
        launch = self._patiently(lambda: self.launcher.start(trial, folder, attempt), trial)
        if launch is not None:
            launchers.save(launch, folder)
        return launch

    def _patiently(self, ask: Callable[[], T], trial: Trial) -> T | None:
        """What `ask` gives, once the pool answers; None if the sweep was stopped. Raises LaunchError after the pool's time is over."""
        while not self.stop.is_set():
            try:
                answer = ask()
            except LaunchRefused as error:  # waiting does not help
                self.pool.refused(str(error))
                raise
            except LaunchError as error:
                if self.pool.down(str(error)):
                    raise LaunchError(f"{error} (waited {self.pool.wait_s:g} s for the pool)") from error
                self.say(trial, "waits for the pool")
                self.stop.wait(_ASK_AGAIN_S)
                continue
            self.pool.up()
            return answer
        return None

    def _follow(self, trial: Trial, launch: Launch) -> TrialResult:
        """Follow one attempt until it is over, is to stop, or makes no progress; then leave none of its processes."""
        folder = self._folder(trial)
        follower, journal = JournalFollower(folder / JOURNAL), Journal()
        progress_at = answered_at = time.monotonic()
        while True:
            over: Status | None = None
            lost: str | None = None
            asked_at = time.monotonic()
            try:
                status = self.launcher.status(launch)
                answered_at = asked_at
                self.launcher.fetch(launch, folder, last=not status.running)
                over = None if status.running else status
                if status.pending:  # Ray has not started it: no hang
                    progress_at = asked_at
                    self.say(trial, "pending")
                self.pool.up()
            except LaunchError as error:
                # The cluster lets go of a trial that it has lost; its storage may come back, and has all of it then
                waited_enough = self.pool.down(str(error))
                too_long = waited_enough if answered_at == asked_at else asked_at - answered_at > self.pool.lost_after_s
                progress_at = asked_at  # not heard of is not hung
                lost = str(error) if too_long else None
            # read after asking: what the trial wrote before it ended is then in the file
            if self._take_new(trial, launch, follower, journal):
                progress_at = time.monotonic()
            if over is not None or lost is not None:
                result = self._worker_result(launch) or self._lost(trial, launch, over, lost, journal)
                if lost is not None:  # who does not answer can neither be told to stop nor asked for a log
                    return self._unless_stopped(trial, launch, result, journal)
                break
            said = self._worker_result(launch)  # it may be there before its process is over: what was measured is kept
            if self.stop.is_set():
                cancelled = _without_worker(trial, launch.attempt, Outcome.CANCELLED, self._why_stopped(), journal)
                result = said if said and said.outcome.final else cancelled
                break
            if time.monotonic() - progress_at > self.policy.hang_timeout_s:
                at = f"after step {journal.steps[-1]['step']}" if journal.steps else "before its first step"
                reason = f"no progress for {self.policy.hang_timeout_s:g} s {at}"
                result = said or _without_worker(trial, launch.attempt, Outcome.HANG, reason, journal)
                break
            self.stop.wait(_POLL_S)
        return self._leave(trial, launch, self._unless_stopped(trial, launch, result, journal), follower, journal)

    def _unless_stopped(self, trial: Trial, launch: Launch, result: TrialResult, journal: Journal) -> TrialResult:
        """The result, or `cancelled` where being stopped is what ended the trial."""
        if self.stop.is_set() and result.outcome in (Outcome.CRASHED, Outcome.INFRA):
            return _without_worker(trial, launch.attempt, Outcome.CANCELLED, self._why_stopped(), journal)
        return result

    def _lost(self, trial: Trial, launch: Launch, over: Status | None, lost: str | None, journal: Journal) -> TrialResult:
        """The result of an attempt that ended without publishing one, or that is not heard of."""
        why = lost or (over and over.message) or "it ended without a result"
        code = over.exit_code if over else None
        for word, kind in _KINDS.items():  # the trial's process was among what Ray lost, and could not say so itself
            if over and word in why:
                return _without_worker(trial, launch.attempt, Outcome.INFRA, f"{kind}: {why}", journal)
        if code == STORAGE_LOST:
            return _without_worker(trial, launch.attempt, Outcome.INFRA, f"storage_lost: {why}", journal)
        if 0 < (code or 0) < _KILLED:  # its own error, before it could publish one
            return _without_worker(trial, launch.attempt, Outcome.CRASHED, why, journal)
        return _without_worker(trial, launch.attempt, Outcome.INFRA, f"worker lost: {why}", journal)

    def _leave(self, trial: Trial, launch: Launch, result: TrialResult, follower: JournalFollower, journal: Journal) -> TrialResult:
        """Nothing of it may run beside the next trial; what it wrote until then is taken. A pool that does not answer cannot be asked."""
        folder = self._folder(trial)
        with suppress(LaunchError):
            self.launcher.stop(launch)
            self.launcher.fetch(launch, folder, last=True)
        self._take_new(trial, launch, follower, journal)
        log = self.launcher.log(launch, folder)
        if launch.launcher == "ray_job":
            (folder / LOG).write_text(log)
        if result.outcome is not Outcome.OK and result.detail is None:
            result = result.model_copy(update={"detail": log[-_TAIL:] or None})
        return result

    def _take_new(self, trial: Trial, launch: Launch, follower: JournalFollower, journal: Journal) -> bool:
        """Pass on what is new in the journal; True if it was this attempt's (what comes first is an earlier one's)."""
        new = []
        for record in follower.poll():
            journal.add(record)
            if journal.attempt == launch.attempt:
                new.append(record)
        if new:
            self.observe(trial, launch.attempt, new)
        return bool(new)

    def _worker_result(self, launch: Launch) -> TrialResult | None:
        """What the worker published, if it is this attempt's."""
        result = self.store.result(launch.key)
        return result if result is not None and result.attempt == launch.attempt else None

    def _why_stopped(self) -> str:
        return self.store.stop_reason() or "the sweep was stopped"

    def _folder(self, trial: Trial) -> Path:
        return self.store.trial_dir(trial.key)

    def _publish(self, result: TrialResult) -> TrialResult:
        self.store.save_result(result)
        return result


def _without_worker(trial: Trial, attempt: int, outcome: Outcome, reason: str, journal: Journal | None = None) -> TrialResult:
    """The result of an attempt whose worker could not publish one."""
    now = time.time()
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
