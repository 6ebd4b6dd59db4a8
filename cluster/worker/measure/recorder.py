"""The records of a running trial: rank 0 writes them into the journal, the other ranks discard them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from cluster.journal.journal import JournalWriter
from cluster.worker.measure.records import step_record
from cluster.worker.outcome import Diverged, Termination
from experiments.step_record import StepTiming


class Sink(Protocol):
    """The part of JournalWriter that a Recorder needs."""

    def append(self, kind: str, t: float | None = None, **fields: Any) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class NullSink:
    """Discards all records: the sink of ranks other than 0."""

    locked = True  # nobody else writes there

    def append(self, kind: str, t: float | None = None, **fields: Any) -> None:
        """Discard the record."""

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Recorder:
    """Writes typed records into a sink. All methods raise OSError once the journal cannot be written."""

    def __init__(self, sink: Sink | JournalWriter, world_size: int = 1, send: Callable[[], object] = lambda: None) -> None:
        """`send`: sends what was written to where it outlives this node."""
        self._sink, self._world_size, self._send = sink, world_size, send

    def phase(self, name: str, t: float | None = None) -> None:
        """Record that the trial enters a phase, or at which time it did (Unix time, s)."""
        self._sink.append("phase", t, name=name)

    def environment(self, fields: dict[str, Any]) -> None:
        """Record the environment; readers take the last record of an attempt."""
        self._sink.append("environment", **fields)

    def packages(self, versions: Mapping[str, str]) -> None:
        """Record the versions of all installed packages."""
        self._sink.append("packages", versions=dict(versions))

    def note(self, text: str) -> None:
        """Record a sentence for people."""
        self._sink.append("note", text=text)

    def step(self, timing: StepTiming, *, measured: bool, more: Mapping[str, float | None] | None = None) -> None:
        """Record a step, with `more` as further fields. Then raise Diverged if its loss is not finite. Raises ImpossibleData."""
        record = step_record(timing, world_size=self._world_size, measured=measured)
        self._sink.append("step", t=timing.ended_at, **{**record, **(more or {})})
        if not math.isfinite(timing.loss):
            raise Diverged(timing.step, timing.loss)

    def window(self, fields: dict[str, Any]) -> None:
        """Record the measured window; readers take the last record of an attempt."""
        self._sink.append("window", **fields)

    def flush(self) -> None:
        """Write what was recorded so far, and send it: the process may be killed at any time, and its node be lost."""
        self._sink.flush()
        self._send()

    def evaluation(self, when: str, metrics: dict[str, float]) -> None:
        """Record held-out metrics `before` or `after` training, numbers of any library; a value that is not finite becomes None."""
        values = {name: float(value) for name, value in metrics.items()}
        self._sink.append(
            "evaluation", when=when, metrics={name: value if math.isfinite(value) else None for name, value in values.items()}
        )

    def end(self, ending: Termination) -> None:
        """Record how the attempt ended."""
        self._sink.append("end", t=time.time(), outcome=str(ending.outcome), reason=ending.reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._sink.close()
        except OSError:
            if error is None:
                raise
