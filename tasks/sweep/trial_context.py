"""What starting, following and repeating a trial's attempts have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.journal.journal import Record
from cluster.launchers import Launch, Launcher
from experiments.trial import Trial, TrialResult
from tasks.sweep.failure_policy import Policy
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.store import SweepStore

Observer = Callable[[Trial, int, Sequence[Record]], None]


@dataclass(frozen=True)
class TrialContext:
    """One sweep on one pool. `observe` is given new journal records, with the trial and the attempt; `say` a word on what a trial waits
    for, before it has any."""

    store: SweepStore
    launcher: Launcher
    policy: Policy
    stop: threading.Event
    observe: Observer
    pool: PoolWatch
    say: Callable[[Trial, str], None] = lambda trial, state: None

    def folder(self, trial: Trial) -> Path:
        return self.store.trial_dir(trial.key)

    def published(self, launch: Launch) -> TrialResult | None:
        """The trial's result, if it is this attempt's."""
        result = self.store.result(launch.key)
        return result if result is not None and result.attempt == launch.attempt else None

    def why_stopped(self) -> str:
        return self.store.stop_reason() or "the sweep was stopped"
