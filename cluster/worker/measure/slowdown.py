"""A deliberate slow-down of known size, the parameter `injected_slowdown`, which tests whether the verdicts detect it.

Each step of the measured window takes longer by this share of its own time, on the device, so the trial really is slower. The trial's
parameters, its journal and its MLflow run state the slow-down, and the trial enters no cell's history.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import torch

from cluster.worker.torch_internals import count_cycles
from experiments.components.workload import Unsupported

if TYPE_CHECKING:
    from cluster.worker.measure.loop import Batch
    from cluster.worker.train.train_step import TrainStep

_PROBE_CYCLES = 50_000_000  # a few hundredths of a second on a GPU


class SlowedTrainStep:
    """A train step that takes longer (see cluster.worker.measure.loop.TrainStepLike).

    On a CPU it spins for `share` of the step's own time by time.perf_counter, so the size is exact. On CUDA a kernel that only counts
    cycles runs in the compute stream for `share` of the median warm-up step; the device's clock rate is measured once. Other devices raise
    Unsupported.
    """

    def __init__(self, inner: TrainStep, share: float) -> None:
        self.inner, self.share = inner, share
        self.on = False
        self._last: float | None = None
        self._intervals: list[float] = []
        self._cycles = 0
        kind = inner.device.torch_device.type
        if kind not in ("cpu", "cuda"):
            raise Unsupported(f"injected_slowdown: no way is known to keep a device of kind {kind} busy for a known time")
        self._spend = self._on_host if kind == "cpu" else self._on_device

    def start(self) -> None:
        """Slow down from the next step on. Raises Unsupported if the warm-up was too short to know how long a step takes."""
        if self._spend == self._on_device:
            if len(self._intervals) < 3:
                raise Unsupported("injected_slowdown: needs at least 5 warm-up steps on a GPU, to know how long a step takes")
            self._cycles = round(self.share * statistics.median(self._intervals) * _cycles_per_s())
        self.on, self._last = True, None

    def place(self, batch: Batch) -> Batch:
        if self._last is None:
            self._last = time.perf_counter()
        return self.inner.place(batch)

    def forward_backward(self, *batches: Batch) -> torch.Tensor:
        return self.inner.forward_backward(*batches)

    def update(self, step: int) -> None:
        self.inner.update(step)
        now = time.perf_counter()
        assert self._last is not None
        if self.on:
            self._spend(now - self._last)
        elif step > 2:  # the first steps are longer: allocation, compilation
            self._intervals.append(now - self._last)
        self._last = time.perf_counter()

    def samples(self, batch: Batch) -> int:
        return self.inner.samples(batch)

    def step_kind(self, batch: Batch) -> str | None:
        return self.inner.step_kind(batch)

    def _on_host(self, step_s: float) -> None:
        until = time.perf_counter() + self.share * step_s
        while time.perf_counter() < until:
            pass

    def _on_device(self, step_s: float) -> None:
        count_cycles(self._cycles)


def _cycles_per_s() -> float:
    """Clock rate of the current CUDA device, from one timed kernel."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    count_cycles(_PROBE_CYCLES)  # raises the clock from idle
    begin.record()
    count_cycles(_PROBE_CYCLES)
    end.record()
    end.synchronize()
    return float(_PROBE_CYCLES / (begin.elapsed_time(end) / 1000))
