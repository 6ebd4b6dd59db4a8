"""When a sweep has to be over, and which of its trials are expected to end by then. A campaign gives each sweep such an end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from cluster.trial_layout import SLOTS
from experiments.trial import Trial
from tasks.sweep.round_time import TrialTimes, trial_times
from tasks.sweep.slot_log import flows_of
from tasks.sweep.store import Plan, SweepStore, readable_result


@dataclass(frozen=True)
class Deadline:
    """`at`: of `clock`, s. `expected`: cell -> what its trials took in past sweeps, s. `usual_s`: of a trial of which nothing is known."""

    at: float
    expected: Mapping[str, float]
    usual_s: float = 0.0
    clock: Callable[[], float] = time.monotonic

    @property
    def left_s(self) -> float:
        return self.at - self.clock()

    def fits(self, trial: Trial, store: SweepStore, plan: Plan) -> bool:
        """Whether the trial is expected to end in time, by `expected_trial_s`."""
        return expected_trial_s(trial, times_so_far(store, plan), self.expected, self.usual_s) <= self.left_s


@dataclass(frozen=True)
class TimesSoFar:
    """What the trials of a sweep took that have ended, and on how many devices each of its cells runs."""

    times: TrialTimes
    devices: Mapping[str, int | None]  # of cells of which a trial has ended


def times_so_far(store: SweepStore, plan: Plan) -> TimesSoFar:
    """Of what is on disk by now."""
    ended = [(each, result) for each in plan.trials if (result := readable_result(store, each.key)) is not None]
    devices = {each.cell: each.parameters.get("devices") for each, _ in ended}
    return TimesSoFar(trial_times(ended, flows=flows_of(store.dir / SLOTS)), devices)


def expected_trial_s(trial: Trial, so_far: TimesSoFar, past: Mapping[str, float], usual_s: float = 0.0) -> float:
    """What a trial is expected to take, with what lies between two of them, s.

    As its cell's trials took in this sweep, else in past ones; else as the slowest of this sweep's cells with as many devices did, else of
    all its cells; where none has ended, the window that it measures at least, which it surely takes longer than.
    """
    times = so_far.times
    if trial.cell in times.seconds or trial.cell in past:
        return times.seconds.get(trial.cell, past.get(trial.cell, 0.0)) + times.between_s
    alike = [seconds for cell, seconds in times.seconds.items() if so_far.devices.get(cell) == trial.parameters.get("devices")]
    known = alike or list(times.seconds.values())
    return (max(known) if known else max(usual_s, trial.least_s)) + times.between_s


CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)
