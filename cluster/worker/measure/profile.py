"""A torch.profiler trace of a few steps, and what their time went to."""

from __future__ import annotations

import gc
import gzip
import os
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from cluster.devices.clock import DATA, Clock
from cluster.worker.measure.matrix_shapes import TracedProducts, traced_products
from cluster.worker.measure.trace_breakdown import breakdown
from cluster.worker.measure.trace_parts import LOADER, StepParts, counted_steps, step_parts
from experiments.atomic_file import atomic_file
from experiments.step_record import StepTiming

if TYPE_CHECKING:
    import torch

_CHUNK = 1 << 20  # bytes, which take some 20 ms to compress


@contextmanager
def trace(path: Path) -> Iterator[None]:
    """Profile the block and write a Chrome trace, JSON, to `path`."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with ExitStack() as stack:
        with profile(activities=activities, record_shapes=True) as profiler:
            yield
            stack.enter_context(without_collections())
        profiler.export_chrome_trace(str(path))


@contextmanager
def trace_file(kept: Path) -> Iterator[Path]:
    """Where to write a trace, also one of a rank whose trace is not kept: beside `kept`, where what a killed process leaves is found
    (tasks/sweep/attempt_files.py, `remove_half_traces` in cluster/worker/trial_files.py). Removed after the block."""
    # The process says whether it is still written; ranks of several hosts, which may share the folder, can have the same
    plain = kept.with_name(f".{os.getpid()}.{secrets.token_hex(4)}.{kept.name}.json")
    plain.parent.mkdir(parents=True, exist_ok=True)  # of rank 0; on another node nobody else makes it
    try:
        yield plain
    finally:
        plain.unlink(missing_ok=True)


def compress(plain: Path, kept: Path, given_up: Event) -> None:
    """Write `plain`, gzipped, to `kept` atomically. Raises OSError, and GivenUp once `given_up` is set; `kept` then stays as it was."""

    def write(temporary: Path) -> None:
        # torch would compress it at level 9, which takes four times as long for a tenth less
        with plain.open("rb") as read, gzip.open(temporary, "wb", compresslevel=6) as written:
            while chunk := read.read(_CHUNK):
                if given_up.is_set():
                    raise GivenUp
                written.write(chunk)

    atomic_file(kept, write)


class GivenUp(Exception):
    """Whoever wanted a trace kept no longer does."""


@contextmanager
def without_collections() -> Iterator[None]:
    """No collection of garbage in the block. A trace is hundreds of thousands of objects, none of them garbage, which each collection would
    look through: they take half of the time in which a trace is read."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class ReadTrace(NamedTuple):
    """The kernels by group, and, of a trace with kernels, the parts of its steps and their matrix products.

    `unread`: why it tells nothing. `not_kept`: why it is not kept, though it was to be.
    """

    breakdown: dict[str, Any] | None
    parts: StepParts | None = None
    products: TracedProducts | None = None
    unread: Exception | None = None
    not_kept: Exception | None = None


class MarkedClock:
    """Times steps as `clock` does, and marks in a trace when the host is in the loader."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self.name = clock, clock.name
        self._span: Any = None

    def begin(self) -> None:
        self._clock.begin()

    def fetch(self) -> None:
        import torch

        self._span = torch.profiler.record_function(LOADER)
        self._span.__enter__()
        self._clock.fetch()

    def mark(self, boundary: int) -> None:
        self._clock.mark(boundary)
        if boundary == DATA:
            self._span.__exit__(None, None, None)

    def finish(self, step: int, samples: int, loss: torch.Tensor) -> list[StepTiming]:
        return self._clock.finish(step, samples, loss)

    def drain(self) -> list[StepTiming]:
        return self._clock.drain()


def read_trace(path: Path, samples: Sequence[int], kept: Path | None = None) -> ReadTrace:
    """What the trace file at `path` tells. `samples`: of each step in it. `kept`: where it is kept, gzipped, whatever it tells.

    It is compressed while it is read, since the device is held meanwhile. One fails without the other, as where the disk is full. What ends
    the trial meanwhile ends both: a trace of 400 MiB takes longer to compress than a trial that is told to end is waited for.
    """
    # Nothing breaks off `orjson.loads`, which holds the interpreter: 400 MiB (1.4 million events) took 6.6 s of a busy cloud core. A trial
    # that is told to end in it may be killed when its grace is over; half-written files are left then alone, which the clean-up finds.
    given_up = Event()
    with without_collections(), ThreadPoolExecutor(1) as thread:
        try:
            compressed = thread.submit(compress, path, kept, given_up) if kept is not None else None
            try:
                found = _told(path, samples)
            except Exception as error:  # the profiler left events out, the file is cut, or there is no memory for it
                # Without its traceback, whose frames hold the events: gigabytes, which would stay while the trial goes on
                found = ReadTrace(None, unread=error.with_traceback(None))
            not_kept = compressed.exception() if compressed is not None else None
        except BaseException:  # told to end; the pool waits for its thread
            given_up.set()
            raise
    return found._replace(not_kept=not_kept) if isinstance(not_kept, Exception) else found


def _told(path: Path, samples: Sequence[int]) -> ReadTrace:
    """Raises as `breakdown` and `counted_steps` do, OSError, ValueError for what is no JSON and KeyError for what is no trace."""
    events = orjson.loads(path.read_bytes())["traceEvents"]
    counted = counted_steps(events, samples)
    found = breakdown(events, len(samples))
    return ReadTrace(found) if counted is None else ReadTrace(found, step_parts(counted), traced_products(events, counted))
