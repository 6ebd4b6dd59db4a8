"""The measured loop. The marks of the clock, all set here, are the boundaries of a step's parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from cluster.devices.clock import COMPUTE, COPY, DATA, UPDATE, Clock
from experiments.step_record import StepTiming, kind_of

if TYPE_CHECKING:
    import torch

Batch = dict[str, Any]


class TrainStepLike(Protocol):
    """What the loop needs of a train step; cluster.worker.train.train_step.TrainStep implements it."""

    def place(self, batch: Batch) -> Batch:
        """Copy the batch to the device and return it."""

    def forward_backward(self, *batches: Batch) -> torch.Tensor:
        """Run forward and backward, or forward alone without training. Returns the loss, a scalar on the device: the batches' mean."""

    def update(self, step: int) -> None:
        """Run the optimiser for step `step` (1-based); does nothing without training."""

    def samples(self, batch: Batch) -> int:
        """Number of samples in a batch."""

    def step_kind(self, batch: Batch) -> str | None:
        """The kind of step that a batch makes, where the workload has several."""


def run_steps(
    steps: Iterable[int],
    batches: Iterator[Batch],
    train_step: TrainStepLike,
    clock: Clock,
    record: Callable[[StepTiming], None],
    micro_batches: int = 1,
) -> int:
    """Train the given steps (1-based) and pass each to `record` once its times and loss are known. Returns this rank's samples.

    A step takes so many `micro_batches`: all of them are loaded, then copied, then computed one after the other.

    The next number is taken when a step has been submitted, which may be before the device has finished it. So `steps` may be a generator
    that decides when to stop; what it takes to decide is part of the next step.

    On return the device has finished the steps and all of them are recorded. The loop itself never waits for the device; the clock does: it
    keeps the host from running more than a few steps ahead, or has each step computed before the next begins.
    """
    total = 0
    kinds: dict[int, str] = {}  # of steps that the clock has not returned yet

    def passed_on(timings: Iterable[StepTiming]) -> None:
        for timing in timings:
            record(replace(timing, step_kind=kinds.pop(timing.step, None)) if kinds else timing)

    for step in steps:
        clock.fetch()
        loaded = [next(batches) for _ in range(micro_batches)]
        clock.mark(DATA)
        placed = [train_step.place(batch) for batch in loaded]
        clock.mark(COPY)
        loss = train_step.forward_backward(*placed)
        clock.mark(COMPUTE)
        train_step.update(step)
        clock.mark(UPDATE)
        samples = sum(train_step.samples(batch) for batch in placed)
        total += samples
        if (kind := kind_of([train_step.step_kind(batch) for batch in placed])) is not None:
            kinds[step] = kind
        passed_on(clock.finish(step, samples, loss))
    passed_on(clock.drain())
    return total
