"""Follow one attempt of a trial to its end: ask its pool, read its journal, and leave none of its processes."""

from __future__ import annotations

import time
from contextlib import suppress

from cluster.journal.journal import Journal, JournalFollower
from cluster.launchers import Launch, LaunchError, Status
from cluster.trial_layout import JOURNAL, LOG
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.attempt_end import AttemptEnd, judge
from tasks.sweep.trial_context import TrialContext

_POLL_S = 0.2
_TAIL = 4000  # characters of the log that explain a failure


class AttemptFollower:
    """Follows one attempt, which is running or was when it was last heard of."""

    def __init__(self, context: TrialContext, trial: Trial, launch: Launch) -> None:
        self._context, self._trial, self._launch, self._folder = context, trial, launch, context.folder(trial)
        self._records, self._journal = JournalFollower(self._folder / JOURNAL), Journal()
        self._progress_at = self._answered_at = time.monotonic()

    def follow(self) -> TrialResult:
        """The attempt's result, once it is over, is to stop, makes no progress or is out of reach. Raises JournalError."""
        while (end := self._look()) is None:
            self._context.stop.wait(_POLL_S)
        result = judge(end, self._trial, self._launch.attempt, self._journal, time.time())
        if end.unreachable is not None:  # who does not answer can neither be told to stop nor asked for a log
            return result
        return self._leave(result)

    def _look(self) -> AttemptEnd | None:
        """Look once; None if the attempt is to be followed on."""
        status, unreachable = self._ask()
        # read after asking: what the trial wrote before it ended is then in the file
        if self._take_new():
            self._progress_at = time.monotonic()
        published = self._context.published(self._launch)  # it may be there before its process is over: what was measured is kept
        stopped = self._context.why_stopped() if self._context.stop.is_set() else None
        if status is not None and not status.running:
            return AttemptEnd(exited=status, stopped=stopped, published=published)
        if unreachable is not None:
            return AttemptEnd(unreachable=unreachable, stopped=stopped, published=published)
        if stopped is not None:
            return AttemptEnd(stopped=stopped, published=published)
        patience_s = self._context.policy.hang_timeout_s
        if time.monotonic() - self._progress_at > patience_s:
            return AttemptEnd(stalled_s=patience_s, published=published)
        return None

    def _ask(self) -> tuple[Status | None, str | None]:
        """Where the attempt stands, with all that it has written fetched; or (None, why) once it was out of reach for too long, and
        (None, None) until then."""
        asked_at, pool = time.monotonic(), self._context.pool
        try:
            status = self._context.launcher.status(self._launch)
            self._answered_at = asked_at
            self._context.launcher.fetch(self._launch, self._folder, last=not status.running)
        except LaunchError as error:
            waited_enough = pool.down(str(error))
            self._progress_at = asked_at  # not heard of is not hung
            # The cluster lets go of a trial that it has lost; its storage may come back, and has all of it then
            only_storage = self._answered_at == asked_at
            too_long = waited_enough if only_storage else asked_at - self._answered_at > pool.lost_after_s
            return None, str(error) if too_long else None
        if status.pending:  # Ray has not started it: no hang
            self._progress_at = asked_at
            self._context.say(self._trial, "pending")
        pool.up()
        return status, None

    def _take_new(self) -> bool:
        """Pass on what is new in the journal; True if it was this attempt's (what comes first is an earlier one's)."""
        new = []
        for record in self._records.poll():
            self._journal.add(record)
            if self._journal.attempt == self._launch.attempt:
                new.append(record)
        if new:
            self._context.observe(self._trial, self._launch.attempt, new)
        return bool(new)

    def _leave(self, result: TrialResult) -> TrialResult:
        """Nothing of it may run beside the next trial; what it wrote until then is taken. A pool that does not answer cannot be asked."""
        launcher = self._context.launcher
        with suppress(LaunchError):
            launcher.stop(self._launch)
            launcher.fetch(self._launch, self._folder, last=True)
        self._take_new()
        log = launcher.log(self._launch, self._folder)
        if self._launch.launcher == "ray_job":
            (self._folder / LOG).write_text(log)
        if result.outcome is not Outcome.OK and result.detail is None:
            result = result.model_copy(update={"detail": log[-_TAIL:] or None})
        return result
