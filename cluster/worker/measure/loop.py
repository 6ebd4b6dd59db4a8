"""The measured loop. Timing boundaries are the clock's marks: nothing is timed that cannot be seen here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from cluster.devices.clock import COMPUTE, COPY, DATA, UPDATE, Clock
from experiments.step_record import StepTiming

if TYPE_CHECKING:
    import torch

Batch = dict[str, Any]


class TrainStepLike(Protocol):
    """What the loop asks of a train step; cluster.worker.train.train_step.TrainStep is one."""

    def place(self, batch: Batch) -> Batch:
        """The batch on the device."""

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        """Forward and backward, or forward alone; returns the loss, still on the device."""

    def update(self, step: int) -> None:
        """The optimiser's step; nothing where nothing is trained."""

    def samples(self, batch: Batch) -> int:
        """Samples in a batch."""


def run_steps(steps: range, batches: Iterator[Batch], train_step: TrainStepLike, clock: Clock, record: Callable[[StepTiming], None]) -> int:
    """Train the given steps (1-based) and record each once its times and its loss are known. Returns this rank's samples.

    On return the device has done all of it and every step is recorded. Nothing in here waits for a device that runs beside the host,
    except that the clock keeps the host from running further ahead than a few steps.
    """
    total = 0
    for step in steps:
        batch = next(batches)
        clock.mark(DATA)
        placed = train_step.place(batch)
        clock.mark(COPY)
        loss = train_step.forward_backward(placed)
        clock.mark(COMPUTE)
        train_step.update(step)
        clock.mark(UPDATE)
        samples = train_step.samples(placed)
        total += samples
        for timing in clock.finish(step, samples, loss):
            record(timing)
    for timing in clock.drain():
        record(timing)
    return total
