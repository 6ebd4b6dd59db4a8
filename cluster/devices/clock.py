"""Step clocks measure when each part of a step ended, with the host's clock or with events on the device.

A step has four marks, in order: DATA (the batch is on the host), COPY (it is on the device), COMPUTE (forward and backward are done),
UPDATE (the optimiser is done and the step ends). A step begins where the previous one ended, so the parts add up to the wall time.
Beside them `fetch` tells when the host begins to ask the loader for the batch, so that its time in the loader is known by itself.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from experiments.step_record import StepTiming

if TYPE_CHECKING:
    import torch

DATA, COPY, COMPUTE, UPDATE = range(4)
RUN_AHEAD = 3  # steps that the host may be ahead of the device
SYNCHRONISED = "host perf_counter, one batch at a time"


class Clock(Protocol):
    """Times steps. `begin` starts the first step; call it again after any work that is not a step."""

    name: str  # which clock this is, for the environment

    def begin(self) -> None:
        """The next step starts now; the device must be idle."""

    def fetch(self) -> None:
        """The host begins to ask the loader for a batch, which it has at the mark DATA."""

    def mark(self, boundary: int) -> None:
        """Mark the end of the part that `boundary` (DATA, COPY, COMPUTE, UPDATE) ends. Raises RuntimeError if out of order."""

    def finish(self, step: int, samples: int, loss: torch.Tensor) -> list[StepTiming]:
        """End the step after its last mark. Returns the steps whose times are known by now, oldest first, perhaps without this one."""

    def drain(self) -> list[StepTiming]:
        """Wait for the steps that `finish` has not returned yet, and return them."""


class LoaderClock:
    """The host's time in the loader, by `now` (s): from `begin` to `end`; None where `begin` was not called."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: float | None = None
        self.waited_s: float | None = None

    def begin(self) -> None:
        self._since = self._now()

    def end(self) -> None:
        self.waited_s = None if self._since is None else self._now() - self._since
        self._since = None


class HostClock:
    """Reads time.perf_counter at each mark. `wall` gives the Unix time of a step's end.

    For devices that compute synchronously; and, with `synchronise`, for one batch at a time on any device: it is called before a step's end
    is read, so that the step's output has been computed. h2d_s is then what the host takes to launch the copy.
    """

    name = "host perf_counter"

    def __init__(
        self,
        now: Callable[[], float] = time.perf_counter,
        wall: Callable[[], float] = time.time,
        synchronise: Callable[[], None] | None = None,
    ) -> None:
        self._now, self._wall, self._synchronise = now, wall, synchronise
        self._loader = LoaderClock(now)
        self._marks: list[float] = []
        if synchronise:
            self.name = SYNCHRONISED

    def begin(self) -> None:
        self._marks = [self._now()]

    def fetch(self) -> None:
        self._loader.begin()

    def mark(self, boundary: int) -> None:
        if boundary != len(self._marks) - 1:
            raise RuntimeError(f"mark {boundary} is out of order")
        if boundary == DATA:
            self._loader.end()
        if boundary == UPDATE and self._synchronise:
            self._synchronise()
        self._marks.append(self._now())

    def finish(self, step: int, samples: int, loss: torch.Tensor) -> list[StepTiming]:
        start, data, copy, compute, update = self._marks
        self._marks = [update]
        parts = (data - start, copy - data, compute - copy, update - compute)
        return [StepTiming(step, samples, float(loss), self._wall(), *parts, update - start, self._loader.waited_s)]

    def drain(self) -> list[StepTiming]:
        return []


class EventClock:
    """For devices that compute asynchronously: records an event in the compute stream at each mark and reads it later.

    The host waits for the device only to stay at most `run_ahead` steps ahead. `new_event()` returns a timing event (record, synchronize,
    elapsed_time in ms). `new_cell()` returns a page-locked host scalar, to which a loss is copied without waiting.
    """

    name = "device events"

    def __init__(
        self,
        new_event: Callable[[], Any],
        new_cell: Callable[[], Any],
        run_ahead: int = RUN_AHEAD,
        wall: Callable[[], float] = time.time,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._new_event, self._wall, self._run_ahead = new_event, wall, run_ahead
        self._loader = LoaderClock(now)
        # events and cells are reused once read: creating them costs more than recording them
        self._cells = deque(new_cell() for _ in range(run_ahead + 1))
        self._events: deque[Any] = deque()
        self._pending: deque[tuple[int, int, list[Any], Any, float | None]] = deque()
        self._marks: list[Any] = []
        self._anchor: tuple[Any, float] | None = None

    def begin(self) -> None:
        if self._pending:
            raise RuntimeError("drain the clock before it begins again")
        event = self._new_event()
        event.record()
        event.synchronize()  # the device is idle, so this does not delay it; it ties the event to the host's clock
        self._anchor = (event, self._wall())
        self._marks = [event]

    def fetch(self) -> None:
        self._loader.begin()

    def mark(self, boundary: int) -> None:
        if boundary != len(self._marks) - 1:
            raise RuntimeError(f"mark {boundary} is out of order")
        if boundary == DATA:
            self._loader.end()
        if boundary == UPDATE:
            return  # recorded by finish, behind the copy of the loss
        self._marks.append(self._record())

    def finish(self, step: int, samples: int, loss: torch.Tensor) -> list[StepTiming]:
        cell = self._cells.popleft()
        cell.copy_(loss.detach(), non_blocking=True)
        end = self._record()
        self._marks.append(end)
        self._pending.append((step, samples, self._marks, cell, self._loader.waited_s))
        self._marks = [end]
        return [self._read() for _ in range(len(self._pending) - self._run_ahead)]

    def drain(self) -> list[StepTiming]:
        return [self._read() for _ in range(len(self._pending))]

    def _record(self) -> Any:
        event = self._events.popleft() if self._events else self._new_event()
        event.record()
        return event

    def _read(self) -> StepTiming:
        step, samples, marks, cell, loader_wait = self._pending.popleft()
        marks[-1].synchronize()
        assert self._anchor is not None
        anchor, anchored_at = self._anchor
        data, copy, compute, update = (before.elapsed_time(after) / 1000 for before, after in pairwise(marks))
        total = marks[0].elapsed_time(marks[-1]) / 1000
        ended_at = anchored_at + anchor.elapsed_time(marks[-1]) / 1000
        loss = float(cell)  # on the host already: no wait
        self._cells.append(cell)
        self._events.extend(mark for mark in marks[:-1] if mark is not anchor)  # the last one starts the next step
        return StepTiming(step, samples, loss, ended_at, data, copy, compute, update, total, loader_wait)
