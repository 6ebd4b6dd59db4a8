"""A trial of a sweep, and what its files say of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.device_state import NOT_SAMPLED, DeviceState
from experiments.stats.steady_state import LEAST
from experiments.summary import BATCH_TIMES, Value
from experiments.trial import Outcome, Trial, TrialResult
from tasks.analysis.held_time import AttemptMarks

LEFT_OUT = "left_out"  # of a row's profile: why it does not say what the traced steps reached
FAILURES = 2  # of a cell's trials, one after the other: once may be chance
_SAYS_NOTHING = ("to do", "unreadable", Outcome.INFRA, Outcome.CANCELLED)  # of a cell: the node was lost, or somebody stopped it


@dataclass(frozen=True)
class TrialRow:
    """One trial of a sweep and what is known of it; `result` is None while it has not ended.

    `steps` and `losses` are the step numbers and losses of the attempt that the result is of, shape (n,); infinite where the loss was
    recorded and is not finite, NaN where none was recorded. Steps after the end of the learning rate's schedule, which only make
    warm-up or window last, are left out: curves of cells can be compared. `rms` is RMS_t of the tensors that were watched, by name,
    likewise.
    `problem` says why a trial's files could not be read.
    """

    trial: Trial
    result: TrialResult | None = None
    summary: Mapping[str, Value] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    steps: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    losses: NDArray[np.float64] = field(default_factory=lambda: np.empty(0, np.float64))
    profile: Mapping[str, Any] | None = (
        None  # where the traced steps' time went: trace_breakdown.py, trace_parts.py in cluster/worker/measure, attainable.py beside it
    )
    problem: str | None = None
    rms: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)  # name -> version of all that was installed; {} in early journals
    state: DeviceState | None = None  # of its device and host while it measured; None: unknown, or its samples are not in this folder
    kept_caps: tuple[str, ...] = ()  # what capped its clock, as a page keeps it; () too on pages of before that was kept
    marks: Mapping[int, AttemptMarks] = field(default_factory=dict)  # of each attempt in its journal, by number; {} without one
    flow: str | None = None  # the flow that ran it; None where that is not known, as on a page

    @property
    def outcome(self) -> str:
        """The outcome's word, `to do` for a trial without a result, `unreadable` for one whose files are damaged."""
        if self.problem:
            return "unreadable"
        return str(self.result.outcome) if self.result else "to do"

    @property
    def trains(self) -> bool:
        """Whether a step trains: only what does not has service times or latencies. True where nothing was measured."""
        return all(self.summary.get(f"{name}_p50_s") is None for name in BATCH_TIMES.values())

    @property
    def disturbed(self) -> str | None:
        """What else was on its device or host while it measured; None for nothing, or where nothing is known."""
        found = self.state.disturbed if self.state else None
        return found or (self.result.disturbed if self.result else None)

    @property
    def capped_by(self) -> tuple[str, ...]:
        """The words of what capped its clock while it measured, the most frequent first; empty for nothing, and where that is not known."""
        return self.state.capped_by if self.state else self.kept_caps

    @property
    def not_judged(self) -> str | None:
        """Why nothing is known of other work while it measured; None where it was judged or disturbed, and for what did not end ok."""
        if self.outcome != "ok" or self.disturbed:
            return None
        if self.state:
            return self.state.not_judged
        if self.summary.get("state_coverage") is None:
            return NOT_SAMPLED
        return self.result.not_judged if self.result else None

    @property
    def emulated(self) -> bool:
        """True if its pool says so, or the device did: then nothing of it is a measurement."""
        return self.trial.emulated or (self.result is not None and self.result.emulated) or bool(self.environment.get("emulated"))

    @property
    def too_short(self) -> bool:
        """Whether its throughput was measured over steps that are too few for an interval."""
        return bool(self.summary.get("throughput") and self.summary.get("measured_steps")) and self.summary.get("throughput_low") is None

    @property
    def settled(self) -> bool | None:
        """Whether its step times became level in the window. None: not known, as where its steps are too few to tell."""
        found = self.summary.get("settled")
        return None if found is None else bool(found)

    @property
    def too_few_steps(self) -> bool:
        """Whether its measured steps are too few to tell whether their times became level."""
        steps = self.summary.get("measured_steps")
        return self.settled is None and bool(steps) and float(steps or 0) < LEAST

    @property
    def reason(self) -> str | None:
        return self.problem or (self.result.reason if self.result else None)


def keep_failing(rows: Iterable[TrialRow]) -> bool:
    """Whether the last trials of a cell, its `rows`, failed one after the other, as where a compiled graph can be made but not read again:
    further rounds would tell no more of it."""
    ended = [row.outcome for row in sorted(rows, key=lambda row: row.trial.repeat) if row.outcome not in _SAYS_NOTHING]
    return len(ended) >= FAILURES and Outcome.OK not in ended[-FAILURES:]
