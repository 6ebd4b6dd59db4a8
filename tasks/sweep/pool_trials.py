"""Run the trials of a sweep on one pool: wait for slots, run, write steps.parquet, keep the results on the pool's storage."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cluster import launchers
from cluster.disk_errors import DATA_LOST, disk_failure, names_other_file
from cluster.journal.lines import Record
from cluster.launchers import Launcher, LaunchError
from cluster.trial_layout import JOURNAL
from experiments.config.errors import DamagedFile
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.batch_search import SearchLimit
from tasks.sweep.disturbances import Disturbances
from tasks.sweep.failure_policy import Policy
from tasks.sweep.first_failures import FirstFailures
from tasks.sweep.head_start import HeadStart
from tasks.sweep.held_slots import HeldSlots
from tasks.sweep.pool_slots import IN_USE, PoolSlots
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.run_trial import TrialRunner
from tasks.sweep.slot_log import SlotLog
from tasks.sweep.slot_waits import SlotWaits
from tasks.sweep.store import SweepStore
from tasks.sweep.sweep_stop import SweepStop


class TrialEvents(Protocol):
    """Whoever records what becomes of trials. Called by the threads of the trials, of each trial by one at a time."""

    def waiting(self, trial: Trial, reason: str, others: Sequence[str] = ()) -> None:
        """It cannot begin yet. `others`: who holds its slots, where that is not its own sweep; "" for one whose name is not known."""

    def started(self, trial: Trial) -> None:
        """It holds its slots."""

    def observed(self, trial: Trial, attempt: int, records: Sequence[Record], log: Any) -> None:
        """New journal records, at least one. `log`: the logger of its task run."""

    def finished(self, trial: Trial, result: TrialResult, log: Any) -> None:
        """It ended, and its files are complete. `log`: the logger of its task run."""

    def damaged(self, trial: Trial, result: TrialResult, log: Any) -> None:
        """Others changed a file of it, which is therefore neither overwritten nor published; the result's reason says what is wrong."""


@dataclass(frozen=True)
class PoolTrials:
    """What the trials of one sweep on one pool share.

    `write_steps`: the analysis', which makes steps.parquet in a trial's folder. `head_start`: of the sweep's first trial, where it began on
    this pool before the flow. `failures`, `waits` and `searches`: shared by all pools of the sweep.
    """

    store: SweepStore
    slots: PoolSlots
    launcher: Launcher
    policy: Policy
    watch: PoolWatch
    stop: SweepStop
    events: TrialEvents
    write_steps: Callable[[Path], Path]
    slot_log: SlotLog
    head_start: HeadStart | None = None
    disturbances: Disturbances = field(default_factory=Disturbances)
    failures: FirstFailures = field(default_factory=FirstFailures)
    waits: SlotWaits = field(default_factory=SlotWaits)
    searches: SearchLimit = field(default_factory=SearchLimit)

    def run(self, trial: Trial, log: Any) -> TrialResult:
        """Run one trial to its result. A file of it that others changed ends it as `infra`, which is told and not published.

        So does a disk that is full or fails, mostly that of the sweep's folder, which also stops the sweep.
        """
        with self.stop.running_trial():
            log.info("trial %s (%s) on pool %s", trial.name, trial.key, trial.pool)
            try:
                result = self._run(trial, log)
                self._complete_files(trial, log)
            except DamagedFile as error:
                result = _not_followed(trial, str(error))
                self.events.damaged(trial, result, log)
            except OSError as error:
                if (why := self._disk(error)) is None:
                    raise
                self.stop.event.set()  # what the other trials measure could not be recorded either
                result = _not_followed(trial, why)
                self.events.damaged(trial, result, log)
            else:
                self.events.finished(trial, result, log)
            if why := self.failures.note(trial, result):
                self.stop.give_up(why)
            return result

    def _run(self, trial: Trial, log: Any) -> TrialResult:
        begun = self.head_start.take_over(trial) if self.head_start else None
        events, stop = self.events, self.stop.event

        def observe(trial: Trial, attempt: int, records: Sequence[Record]) -> None:
            events.observed(trial, attempt, records, log)

        told = (lambda others: events.waiting(trial, IN_USE, others), lambda: events.started(trial))
        with HeldSlots(self.slots, trial, stop, self.slot_log, self.waits, *told, begun.slots if begun else None) as held:
            parts = (self.store, self.launcher, self.policy, stop, observe, self.watch, events.waiting, self.disturbances)
            return TrialRunner(*parts, self.slot_log.started, held.without, self.searches).run(trial, begun.attempt if begun else None)

    def _disk(self, error: OSError) -> str | None:
        """Why the trial cannot be followed, where the error is a disk's; None for any other error."""
        folder = self.store.dir
        if (disk := disk_failure(error, [folder])) is None:
            return None
        if disk.kind == DATA_LOST or names_other_file(error, [folder]):
            return f"{disk.kind}: {disk.text}; {disk.remedy}"
        return f"{disk.kind}: the sweep's folder {folder} cannot be written ({error.strerror or disk.text}); {disk.remedy}"

    def _complete_files(self, trial: Trial, log: Any) -> None:
        """steps.parquet, and a copy of everything on the pool's storage where it has one."""
        folder = self.store.trial_dir(trial.key)
        if measured := (folder / JOURNAL).exists():
            self.write_steps(folder)
        launch = launchers.load(folder)
        if launch is not None and (measured or not launch.starting):  # else there is nothing of it on the storage
            try:
                self.launcher.keep(launch, folder)
            except LaunchError as error:
                log.warning("results are here and not on the pool's storage: %s", error)


def _not_followed(trial: Trial, reason: str) -> TrialResult:
    now = time.time()
    return TrialResult(
        key=trial.key, attempt=1, outcome=Outcome.INFRA, reason=reason, started_at=now, finished_at=now, emulated=trial.emulated
    )
