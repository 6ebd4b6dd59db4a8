"""When a sweep has to be over, and which of its trials are expected to end by then. A campaign gives each sweep such an end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from cluster.trial_layout import RESULT, SLOTS
from experiments.trial import Trial, TrialResult
from tasks.sweep.file_stamp import Stamp, file_stamp
from tasks.sweep.round_time import TrialTimes, longest_trials, trial_times
from tasks.sweep.slot_log import flows_of
from tasks.sweep.slot_waits import SlotWaits
from tasks.sweep.store import Plan, SweepStore, readable_result


class ResultsRead:
    """The results of a sweep's trials, each read once: whoever asks before each trial would else read all of them for each.

    A trial that is measured again has another file, which is read.
    """

    def __init__(self) -> None:
        self._read: dict[str, tuple[Stamp, TrialResult | None]] = {}

    def result(self, store: SweepStore, key: str) -> TrialResult | None:
        """As `readable_result`."""
        stamp = file_stamp(store.trial_dir(key) / RESULT)
        if stamp is None:
            return None
        if key not in self._read or self._read[key][0] != stamp:
            self._read[key] = stamp, readable_result(store, key)
        return self._read[key][1]


@dataclass(frozen=True)
class Deadline:
    """Of one sweep. `at`: of `clock`, s, and so much later as the sweep `waits` for slots that others hold. `expected`: cell -> what its
    trials took in past sweeps, s. `usual_s`: of a trial of which nothing is known. `late`: keys of trials that were not begun for want of
    time."""

    at: float
    expected: Mapping[str, float]
    usual_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    waits: SlotWaits = field(default_factory=SlotWaits)
    late: set[str] = field(default_factory=set)
    _results: ResultsRead = field(default_factory=ResultsRead, init=False)

    @property
    def left_s(self) -> float:
        return self.at + self.waits.seconds - self.clock()

    def fits(self, trial: Trial, store: SweepStore, plan: Plan) -> bool:
        """Whether the trial is expected to end in time, by `expected_trial_s`."""
        so_far = times_so_far(store, plan, self._results.result)
        return expected_trial_s(trial, so_far, self.expected, self.usual_s) <= self.left_s


@dataclass(frozen=True)
class TimesSoFar:
    """What the trials of a sweep took that have ended, and on how many devices each of its cells runs."""

    times: TrialTimes
    longest: Mapping[str, float]  # cell -> its longest trial that ended ok, as it was: with what a first one compiles, s
    devices: Mapping[str, int | None]  # of cells of which a trial has ended


def times_so_far(store: SweepStore, plan: Plan, result_of: Callable[[SweepStore, str], TrialResult | None] = readable_result) -> TimesSoFar:
    """Of what is on disk by now, as `result_of` reads it."""
    ended = [(each, result) for each in plan.trials if (result := result_of(store, each.key)) is not None]
    devices = {each.cell: each.parameters.get("devices") for each, _ in ended}
    return TimesSoFar(trial_times(ended, flows=flows_of(store.dir / SLOTS)), longest_trials(ended), devices)


def expected_trial_s(trial: Trial, so_far: TimesSoFar, past: Mapping[str, float], usual_s: float = 0.0) -> float:
    """What a trial is expected to take, with what lies between two of them, s.

    As its cell's trials took in this sweep, else in past ones; else as the slowest of this sweep's cells with as many devices did, else of
    all its cells; where none has ended, the window that it measures at least, which it surely takes longer than.
    """
    times = so_far.times
    if trial.cell in times.seconds or trial.cell in past:
        return times.seconds.get(trial.cell, past.get(trial.cell, 0.0)) + times.between_s
    alike = [seconds for cell, seconds in so_far.longest.items() if so_far.devices.get(cell) == trial.parameters.get("devices")]
    known = alike or list(so_far.longest.values())
    return (max(known) if known else max(usual_s, trial.least_s)) + times.between_s


CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def held_to(ends: Deadline | None) -> Iterator[None]:
    """A flow that runs meanwhile has this deadline; None: it has none."""
    before = CURRENT.set(ends)
    try:
        yield
    finally:
        CURRENT.reset(before)
