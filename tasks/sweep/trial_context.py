"""The context that starting, following and retrying a trial's attempts share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from cluster.journal.lines import Record
from cluster.launchers import Launch, Launcher
from experiments.trial import Trial, TrialResult
from tasks.sweep.batch_search import SearchLimit
from tasks.sweep.disturbances import Disturbances
from tasks.sweep.failure_policy import Policy
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.result_file import last_result
from tasks.sweep.store import SweepStore

Observer = Callable[[Trial, int, Sequence[Record]], None]


@dataclass(frozen=True)
class TrialContext:
    """One sweep on one pool.

    `observe(trial, attempt, records)` is called with new journal records; `say(trial, state)` with what a trial without records waits for;
    `starting(key, attempt)` before an attempt is started, or followed that another flow started; of a pool that was down, once it has
    started it. Inside a block of `without_slots()` others may use the trial's slots. `searches`: by when those for the largest batch end.
    """

    store: SweepStore
    launcher: Launcher
    policy: Policy
    stop: threading.Event
    observe: Observer
    pool: PoolWatch
    say: Callable[[Trial, str], None] = lambda trial, state: None
    disturbances: Disturbances = field(default_factory=Disturbances)
    starting: Callable[[str, int], None] = lambda key, attempt: None
    without_slots: Callable[[], AbstractContextManager[None]] = nullcontext
    searches: SearchLimit = field(default_factory=SearchLimit)

    def folder(self, trial: Trial) -> Path:
        """The trial's folder."""
        return self.store.trial_dir(trial.key)

    def result_of(self, launch: Launch) -> TrialResult | None:
        """What this attempt has written as its result; None while that is another's, or none. Raises DamagedFile."""
        result = last_result(self.store.trial_dir(launch.key), launch.key)
        return result if result is not None and result.attempt == launch.attempt else None

    def why_stopped(self) -> str:
        """Why the sweep was stopped, as a reason for its trials' results."""
        return self.store.stop_reason() or "the sweep was stopped"
