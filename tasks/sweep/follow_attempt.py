"""Follow one attempt of a trial to its end: ask its pool, read its journal, and end all its processes."""

from __future__ import annotations

import time
from contextlib import suppress

from cluster.attempt_log import with_attempt
from cluster.journal.journal import Journal, JournalFollower
from cluster.launchers import Launch, LaunchError, Status, processes
from cluster.trial_layout import JOURNAL, LOG
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.attempt_end import AttemptEnd, judge
from tasks.sweep.attempt_files import tidy
from tasks.sweep.batch_search import BatchSearch
from tasks.sweep.count_measured import count_measured
from tasks.sweep.trial_context import TrialContext

_POLL_S = 0.2
_REAPED_S = 0.01  # from the end of a process until its parent has told us its exit status
_LEAVING_S = 60.0  # from a worker's result to the end of its process, which may hang as it leaves
_TAIL = 4000  # characters at the end of the log that a failed trial's result keeps


class AttemptFollower:
    """Follows one attempt that is running as far as the flow knows."""

    def __init__(self, context: TrialContext, trial: Trial, launch: Launch) -> None:
        self._context, self._trial, self._launch, self._folder = context, trial, launch, context.folder(trial)
        self._records, self._journal, self._search = JournalFollower(self._folder / JOURNAL, trial.key), Journal(), BatchSearch()
        self._progress_at = self._answered_at = time.monotonic()
        self._result_at: float | None = None  # when the worker's result was first there

    def follow(self) -> TrialResult:
        """Wait until the attempt is over, is stopped, makes no progress, is unreachable, or has no time left for its search
        (batch_search.py), and return its result. Raises JournalError."""
        while (end := self._poll()) is None:
            self._wait()
        result = judge(end, self._trial, self._launch.attempt, self._journal, time.time())
        if end.unreachable is not None:  # an unreachable attempt can neither be stopped nor asked for its log
            return result
        return self._finish(result)

    def _wait(self) -> None:
        """Until the next look. The end of a process of this machine is not waited out: the device is idle from then on."""
        if self._launch.launcher != "local":
            self._context.stop.wait(_POLL_S)
        elif processes.wait_for_end(int(self._launch.id), self._launch.born, _POLL_S):
            self._context.stop.wait(_REAPED_S)

    def _poll(self) -> AttemptEnd | None:
        """Check the attempt once; None while it must be followed further."""
        status, unreachable = self._ask()
        # read after asking: if it has ended, the file then holds everything it wrote
        if self._observe_new():
            self._progress_at = time.monotonic()
        result = self._context.result_of(self._launch)  # it may exist before the process ends: what was measured is kept
        stopped = self._context.why_stopped() if self._context.stop.is_set() else None
        if status is not None and not status.running:
            return AttemptEnd(exited=status, stopped=stopped, worker_result=result, folder=self._launch.folder or str(self._folder))
        if status is not None and status.overdue is not None:
            return AttemptEnd(unplaced=status.overdue, stopped=stopped, worker_result=result)
        if unreachable is not None:
            return AttemptEnd(unreachable=unreachable, stopped=stopped, worker_result=result)
        if stopped is None and (result is None or not result.outcome.final):
            stopped = self._context.searches.cut_off(self._trial, self._search)
        if stopped is not None:
            return AttemptEnd(stopped=stopped, worker_result=result)
        return self._stalled(result)

    def _stalled(self, result: TrialResult | None) -> AttemptEnd | None:
        """Its end, if it runs without a record for too long, or after its result."""
        now, patience_s = time.monotonic(), self._context.policy.hang_timeout_s
        if result is not None and result.outcome.final:  # another may be a flow's, which gave the attempt up
            self._result_at = now if self._result_at is None else self._result_at
            if now - self._result_at > _LEAVING_S:
                return AttemptEnd(stalled_s=_LEAVING_S, worker_result=result)
        if now - self._progress_at > patience_s:
            return AttemptEnd(stalled_s=patience_s, worker_result=result)
        return None

    def _ask(self) -> tuple[Status | None, str | None]:
        """The attempt's status, after fetching all that it has written.

        (None, None) while the attempt is unreachable; (None, why) once it has been unreachable for too long.
        """
        asked_at, pool = time.monotonic(), self._context.pool
        try:
            status = self._context.launcher.status(self._launch)
            self._answered_at = asked_at
            self._context.launcher.fetch(self._launch, self._folder, last=not status.running)
        except LaunchError as error:
            waited_enough = pool.down(str(error))
            self._progress_at = asked_at  # an unreachable trial is never classified as hung
            # A cluster drops a trial that it has lost. Storage may come back and then still holds everything, so it gets more time.
            only_storage = self._answered_at == asked_at
            too_long = waited_enough if only_storage else asked_at - self._answered_at > pool.lost_after_s
            return None, str(error) if too_long else None
        if status.pending:  # Ray has not started it, so it cannot hang
            self._progress_at = asked_at
            self._context.say(self._trial, "pending")
        pool.up()
        return status, None

    def _observe_new(self) -> bool:
        """Pass new journal records of this attempt to the observer; True if there were any. Skips records of earlier attempts."""
        new = []
        for record in self._records.poll():
            self._journal.add(record)
            if self._journal.attempt == self._launch.attempt:
                self._search.add(record)
                new.append(record)
        if new:
            self._context.observe(self._trial, self._launch.attempt, new)
        return bool(new)

    def _finish(self, result: TrialResult) -> TrialResult:
        """Stop all the attempt's processes, so that none disturbs the next trial, and fetch the rest of what it wrote."""
        launcher, ended = self._context.launcher, False
        with suppress(LaunchError):
            launcher.stop(self._launch)
            launcher.fetch(self._launch, self._folder, last=True)
            ended = True
        self._observe_new()
        if ended:
            result = count_measured(result, self._trial, self._folder)
            self._observe_new()
            tidy(self._folder, result, self._journal)
        log = launcher.log(self._launch, self._folder)
        if self._launch.launcher == "ray_job":
            path = self._folder / LOG
            earlier = path.read_text(errors="replace") if path.exists() else ""
            path.write_text(with_attempt(earlier, self._launch.attempt, log, result.started_at))
        if result.outcome is not Outcome.OK and result.detail is None:
            result = result.model_copy(update={"detail": log[-_TAIL:] or None})
        return result
