"""The attempt that comes next for a trial: one that is not known to have ended, or a new one once the pool takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cluster import launchers
from cluster.journal.journal import JournalFollower
from cluster.launchers import Launch, LaunchError, LaunchRefused
from cluster.trial_layout import JOURNAL
from experiments.trial import Outcome, Trial
from tasks.sweep.trial_context import TrialContext

_ASK_AGAIN_S = 3.0  # a pool that is down

T = TypeVar("T")


@dataclass(frozen=True)
class Attempt:
    """An attempt to follow. `started_here`: False for one that was begun before, by this flow or another."""

    launch: Launch
    started_here: bool


class AttemptStarter:
    """Begins the attempts of one trial."""

    def __init__(self, context: TrialContext, trial: Trial) -> None:
        self._context, self._trial, self._folder = context, trial, context.folder(trial)

    @property
    def next_number(self) -> int:
        """Number of the attempt that would be started now, 1 for the first."""
        before = launchers.load(self._folder)
        return (before.attempt if before else 0) + 1

    def begin(self) -> Attempt | None:
        """The attempt to follow now; None if the sweep was stopped. Raises LaunchError once the pool's time to come back is over, and
        JournalError for a journal that was changed by others."""
        before = launchers.load(self._folder)
        if before and (launch := self._unfinished(before)):
            return Attempt(launch, started_here=False)
        if self._context.stop.is_set():
            return None
        new = self._start(self.next_number)
        return Attempt(new, started_here=True) if new else None

    def _unfinished(self, launch: Launch) -> Launch | None:
        """The trial's last launch if its end is not known: another flow died over it, or gave it up while its pool did not answer.

        A pool that does not answer now is waited for: what it runs must not be run twice. Raises LaunchError, None also for a stopped
        sweep.
        """
        result = self._context.published(launch)
        if result is None:
            return launch
        status = self._patiently(lambda: self._context.launcher.status(launch))
        if status is None or not status.running:
            return None
        if result.outcome is Outcome.INFRA:
            return launch
        self._patiently(lambda: self._context.launcher.stop(launch))  # it was cancelled, and its pool could not be told
        return None

    def _start(self, number: int) -> Launch | None:
        """Start an attempt, waiting for a pool that is down; None if the sweep was stopped meanwhile. Raises LaunchError."""
        JournalFollower(self._folder / JOURNAL).poll()  # raises rather than let a worker append to a journal that was changed
        launch = self._patiently(lambda: self._context.launcher.start(self._trial, self._folder, number))
        if launch is not None:
            launchers.save(launch, self._folder)
        return launch

    def _patiently(self, ask: Callable[[], T]) -> T | None:
        """What `ask` gives, once the pool answers; None if the sweep was stopped. Raises LaunchError after the pool's time is over."""
        stop, pool = self._context.stop, self._context.pool
        while not stop.is_set():
            try:
                answer = ask()
            except LaunchRefused as error:  # waiting does not help
                pool.refused(str(error))
                raise
            except LaunchError as error:
                if pool.down(str(error)):
                    raise LaunchError(f"{error} (waited {pool.wait_s:g} s for the pool)") from error
                self._context.say(self._trial, "waits for the pool")
                stop.wait(_ASK_AGAIN_S)
                continue
            pool.up()
            return answer
        return None
