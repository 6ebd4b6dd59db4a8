"""Begin a trial's next attempt: continue one that has not ended as far as the flow knows, or start a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cluster import launchers
from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalFollower
from cluster.journal.lines import Record
from cluster.launchers import Launch, LaunchError, LaunchRefused
from cluster.trial_layout import JOURNAL
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.count_measured import count_measured
from tasks.sweep.result_file import forget_result, last_result
from tasks.sweep.trial_context import TrialContext
from tasks.sweep.trial_record import last_attempt, tell_trial

_ASK_AGAIN_S = 3.0  # interval between requests to a pool that is down

T = TypeVar("T")


@dataclass(frozen=True)
class Attempt:
    """An attempt to follow. `started_here`: False if it was started earlier, by this flow or another."""

    launch: Launch
    started_here: bool


@dataclass(frozen=True)
class Measured:
    """An attempt that ended before it was asked for, and counts: its result."""

    result: TrialResult


class AttemptStarter:
    """Begins the attempts of one trial."""

    def __init__(self, context: TrialContext, trial: Trial) -> None:
        self._context, self._trial, self._folder = context, trial, context.folder(trial)

    @property
    def next_number(self) -> int:
        """Number of the next new attempt, 1 for the first: that of the last one again where its start came to nothing. On Ray the job then
        has the same id, so one whose submission is still on its way is not started twice."""
        starting = self._starting()
        return last_attempt(self._folder) + 1 if starting is None else starting.attempt

    def begin(self, *, again: TrialResult | None = None) -> Attempt | Measured | None:
        """The attempt to follow now; the last one where that has ended and was measured; None if the sweep was stopped. `again`: the
        disturbed measurement that a new one is to replace.

        Raises LaunchError if the pool is down for longer than its `wait_s`, and JournalError for a journal that was changed by others.
        """
        records, damage = self._journal()
        starting = self._starting()
        find = partial(launchers.find, self._trial, self._folder, lambda: self._context.launcher, records)
        before = find() if starting is None else self._ask(find)
        if before and (launch := self._unfinished(before, found_now=starting is not None, again=again)):
            return Attempt(launch, started_here=False)
        if self._context.stop.is_set():
            return None
        if damage:
            raise damage  # a worker must not append to a damaged journal
        if (measured := self._measured()) is not None:
            return measured
        new = self._start(self.next_number, again=again)
        return Attempt(new, started_here=True) if new else None

    def _measured(self) -> Measured | None:
        """The last attempt, which has ended, if it counts by now: its journal could not be closed on a full disk, say."""
        result = last_result(self._folder, self._trial.key)
        counted = count_measured(result, self._trial, self._folder) if result is not None else None
        return Measured(counted) if counted is not None and counted is not result else None

    def _journal(self) -> tuple[Sequence[Record], JournalError | None]:
        """Its records; none, and what is wrong with it, where it is damaged."""
        try:
            return JournalFollower(self._folder / JOURNAL, self._trial.key).poll(), None
        except JournalError as error:
            return [], error

    def _starting(self) -> Launch | None:
        """The last attempt, if a flow died in its start or could not start it: whether it began is not known."""
        launch = launchers.load(self._folder)
        return launch if launch is not None and launch.starting else None

    def _ask(self, find: Callable[[], Launch | None]) -> Launch | None:
        """What has begun of an attempt that was starting; None for nothing, or if the sweep is stopped before that is known. Raises
        LaunchError."""
        if self._context.stop.is_set():  # one look: what has begun is to be stopped
            with suppress(LaunchError):
                return find()
        return self._retry(find)

    def _unfinished(self, launch: Launch, *, found_now: bool, again: TrialResult | None) -> Launch | None:
        """The trial's last launch if no flow saw its end; None if one did, or the sweep was stopped. Raises LaunchError. `again`: as in
        `begin`. `found_now`: it has begun, and nobody followed it; it may have ended while its pool was asked, or be on a storage that
        was not.

        No flow saw it if another flow died during the attempt, or gave it up because the pool did not answer. This waits for a pool that
        does not answer, since its trial must not run twice.
        """
        result = self._context.result_of(launch)
        if result is None or (found_now and result.outcome is not Outcome.CANCELLED):
            return launch
        if result.outcome.final and (again is None or result.attempt != again.attempt):
            return launch  # it ended by itself after the caller had looked for its result, which counts
        status = self._retry(lambda: self._context.launcher.status(launch))
        if status is None or (not status.running and not self._ended_unseen(launch, result)):
            return None
        if not status.running or result.outcome is Outcome.INFRA:
            return launch
        self._retry(lambda: self._context.launcher.stop(launch))  # it was cancelled while its pool was unreachable
        return None

    def _ended_unseen(self, launch: Launch, result: TrialResult) -> bool:
        """Whether an attempt that a flow gave up, `result`, came to a result of its own since, which is on its pool's storage. Raises
        LaunchError and JournalError."""
        if result.outcome is not Outcome.INFRA:
            return False
        self._retry(lambda: self._context.launcher.fetch(launch, self._folder, last=True))
        own = self._context.result_of(launch)
        return own is not None and own.outcome.final

    def _start(self, number: int, *, again: TrialResult | None) -> Launch | None:
        """Start an attempt, waiting without slots for a pool that is down; None if the sweep was stopped meanwhile. Raises LaunchError."""
        tell_trial(self._trial, self._folder)
        if launchers.load(self._folder) is None:  # none was noted: its folder is new, or was moved away, with what it told of its attempts
            find = partial(self._context.launcher.free_number, self._trial, self._folder, number)
            if (free := self._retry(find, self._context.without_slots)) is None:
                return None
            number = free
        asked, launcher = 0, self._context.launcher

        def of_attempt(launch: Launch) -> Launch:
            return launch.model_copy(update={"replaces": again})

        def start() -> Launch:
            nonlocal asked
            asked += 1
            if asked == 1:
                self._context.starting(self._trial.key, number)
                launcher.end_earlier(self._trial)  # first: what is found from here on is this attempt's
                launchers.save(of_attempt(launcher.starting(self._trial, self._folder, number)), self._folder)
                forget_result(self._folder, number)
                return launcher.start(self._trial, self._folder, number)
            # The reply to an earlier request may be lost, and by now the job with it: then its journal or the storage tells of it
            launch = launchers.find(self._trial, self._folder, lambda: launcher) or launcher.start(self._trial, self._folder, number)
            self._context.starting(self._trial.key, number)  # while the pool is down the trial has started nothing
            return launch

        launch = self._retry(start, self._context.without_slots)
        if launch is None:
            return None
        launch = of_attempt(launch)
        launchers.save(launch, self._folder)
        return launch

    def _retry(self, ask: Callable[[], T], pause: Callable[[], AbstractContextManager[None]] = nullcontext) -> T | None:
        """The result of `ask`, retried until the pool answers; None if the sweep was stopped. Raises LaunchError after `wait_s`.

        `pause`: holds what is held otherwise between two requests. By default the trial keeps its slots: it may be running in them.
        """
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
                with pause():
                    stop.wait(_ASK_AGAIN_S)
                continue
            pool.up()
            return answer
        return None
