"""Run one trial to a typed outcome: start it on its pool, follow its journal, try again where only the infrastructure failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import launchers
from cluster.journal import Journal, JournalFollower, Record
from cluster.launchers import Launch, Launcher, LaunchError, LaunchRefused
from experiments.trial import Outcome, Trial, TrialResult
from tasks.store import SweepStore

_POLL_S = 0.2
_UNREACHABLE_S = 60.0  # a pool may restart its head; after this it is lost
_TAIL = 4000
_KILLED = 128  # a shell's exit status for a signal, and more: Ray says 137 for SIGKILL

Observer = Callable[[Trial, int, Sequence[Record]], None]


@dataclass(frozen=True)
class Policy:
    """How patient the sweep is with a trial."""

    retries: int = 2  # further attempts after an infrastructure failure
    hang_timeout_s: float = 600.0  # no new journal record for this long
    launch_wait_s: float = 600.0  # how long a pool may refuse a trial


@dataclass(frozen=True)
class TrialRunner:
    """Runs trials of one sweep on one pool. `observe` is given new journal records, with the trial and the attempt."""

    store: SweepStore
    launcher: Launcher
    policy: Policy
    stop: threading.Event
    observe: Observer

    def run(self, trial: Trial) -> TrialResult:
        """The trial's result, also published as result.json. Attempts that only the infrastructure ended are made again, from the start.

        An attempt that another flow left running is followed, not repeated. Raises JournalError if the journal was changed by others.
        """
        attempts = 0
        while True:
            launch = self._left_running(trial)
            if launch is None:
                before = launchers.load(self._folder(trial))
                attempt = (before.attempt if before else 0) + 1
                try:
                    launch = self._start(trial, attempt)
                except LaunchError as error:
                    return self._publish(_without_worker(trial, attempt, Outcome.INFRA, f"not started: {error}"))
                if launch is None:
                    return self._publish(_without_worker(trial, attempt, Outcome.CANCELLED, self._why_stopped()))
            attempts += 1
            result = self._publish(self._follow(trial, launch))
            if result.outcome is not Outcome.INFRA or attempts > self.policy.retries or self.stop.is_set():
                return result

    def _left_running(self, trial: Trial) -> Launch | None:
        """The trial's last launch if it still runs."""
        launch = launchers.load(self._folder(trial))
        if launch is None or self._worker_result(launch) is not None:
            return None
        try:
            return launch if self.launcher.status(launch).running else None
        except LaunchError:
            return None

    def _start(self, trial: Trial, attempt: int) -> Launch | None:
        """Start an attempt, waiting for a pool that is down; None if the sweep was stopped meanwhile. Raises LaunchError."""
        folder = self._folder(trial)
        deadline = time.monotonic() + self.policy.launch_wait_s
        JournalFollower(folder / "journal.jsonl").poll()  # raises rather than let a worker append to a journal that was changed
        while not self.stop.is_set():
            try:
                launch = self.launcher.start(trial, folder, attempt)
            except LaunchRefused:
                raise
            except LaunchError:
                if time.monotonic() > deadline:
                    raise
                self.stop.wait(5.0)
                continue
            launchers.save(launch, folder)
            return launch
        return None

    def _follow(self, trial: Trial, launch: Launch) -> TrialResult:
        """Follow one attempt until it is over, is to stop, or makes no progress; then leave none of its processes."""
        folder = self._folder(trial)
        follower, journal = JournalFollower(folder / "journal.jsonl"), Journal()
        progress_at = answered_at = time.monotonic()
        while True:
            over: str | None = None  # why, once it is
            failed = False
            try:
                status = self.launcher.status(launch)
                answered_at = time.monotonic()
                if not status.running:
                    over = status.message or "it ended without a result"
                    failed = 0 < (status.exit_code or 0) < _KILLED  # its own error, before it could publish one
            except LaunchError as error:
                if time.monotonic() - answered_at > _UNREACHABLE_S:
                    over = str(error)
            # read after asking: what the trial wrote before it ended is then in the file
            if self._take_new(trial, launch, follower, journal):
                progress_at = time.monotonic()
            if over is not None:
                outcome, why = (Outcome.CRASHED, over) if failed else (Outcome.INFRA, f"worker lost: {over}")
                result = self._worker_result(launch) or _without_worker(trial, launch.attempt, outcome, why, journal)
                break
            if self.stop.is_set():
                result = _without_worker(trial, launch.attempt, Outcome.CANCELLED, self._why_stopped(), journal)
                break
            if time.monotonic() - progress_at > self.policy.hang_timeout_s:
                at = f"after step {journal.steps[-1]['step']}" if journal.steps else "before its first step"
                reason = f"no progress for {self.policy.hang_timeout_s:g} s {at}"
                result = _without_worker(trial, launch.attempt, Outcome.HANG, reason, journal)
                break
            self.stop.wait(_POLL_S)
        if self.stop.is_set() and result.outcome in (Outcome.CRASHED, Outcome.INFRA):  # being stopped is what ended it
            result = _without_worker(trial, launch.attempt, Outcome.CANCELLED, self._why_stopped(), journal)
        self.launcher.stop(launch)  # nothing of it may run beside the next trial
        self._take_new(trial, launch, follower, journal)
        log = self.launcher.log(launch, folder)
        if launch.launcher == "ray_job":
            (folder / "log.txt").write_text(log)
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
