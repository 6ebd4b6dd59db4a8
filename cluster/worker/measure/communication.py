"""Cost of the gradients' all-reduce in a data-parallel step: how long it takes alone, and how much longer it makes a step.

Measured at the end of a trial, on steps that enter no figure, because the replicas drift apart under DDP's no_sync().
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.devices import Device
    from cluster.worker.train.train_step import TrainStep
    from experiments.step_record import StepTiming

BUCKET_BYTES = 25 * 2**20  # DDP's default bucket size
BUFFERS = 4  # used in turn: together they exceed a device's cache
ALONE_ROUNDS = 3

Blocks = Callable[[int, Callable[["StepTiming"], None]], None]  # (number of steps, what to do with each step's timing)


def measure(train_step: TrainStep, device: Device, steps: int, run: Blocks) -> dict[str, Any]:
    """Train `steps` steps with and as many without the all-reduce, then all-reduce as many bytes without other work.

    The steps run in blocks (with, without, without, with), whose first steps are discarded. Returns medians in seconds, averaged over
    ranks: `with_s` and `without_s` (forward and backward of a step), `step_s` (a whole step with the all-reduce), `alone_s` (one all-reduce
    of all gradients, by time.perf_counter). Also returns `bytes` of the gradients and `steps`, the steps measured of each kind. The times
    of steps come from the device's step clock.
    """
    half = max(1, steps // 2)
    timings: dict[bool, list[StepTiming]] = {True: [], False: []}
    for synchronised in (True, False, False, True):
        block: list[StepTiming] = []
        with train_step.gradients_apart(not synchronised):
            run(half + 1, block.append)
        timings[synchronised] += block[1:]
    size = sum(parameter.numel() * parameter.element_size() for parameter in train_step.trained)
    medians = [
        statistics.median(timing.forward_backward_s for timing in timings[True]),
        statistics.median(timing.forward_backward_s for timing in timings[False]),
        statistics.median(timing.total_s for timing in timings[True]),
        statistics.median(_alone(size, device) for _ in range(ALONE_ROUNDS)),
    ]
    return {
        **dict(zip(("with_s", "without_s", "step_s", "alone_s"), _mean(medians, device), strict=True)),
        "bytes": size,
        "steps": 2 * half,
    }


def _alone(size: int, device: Device) -> float:
    """Seconds that all ranks take to sum `size` bytes, in buckets of BUCKET_BYTES."""
    import torch
    from torch import distributed

    buffers = [torch.rand(BUCKET_BYTES // 4, device=device.torch_device) for _ in range(BUFFERS)]
    works: list[Any] = [None] * BUFFERS
    distributed.barrier()
    device.synchronize()
    started = time.perf_counter()
    for number, at in enumerate(range(0, size, BUCKET_BYTES)):
        slot = number % BUFFERS
        if works[slot] is not None:
            works[slot].wait()
        part = buffers[slot][: max(1, min(BUCKET_BYTES, size - at) // 4)]
        works[slot] = distributed.all_reduce(part, async_op=True)
    for work in works:
        if work is not None:
            work.wait()
    device.synchronize()
    return time.perf_counter() - started


def _mean(values: list[float], device: Device) -> list[float]:
    """Each value averaged over the ranks."""
    import torch
    from torch import distributed

    total = torch.tensor(values, dtype=torch.float32, device=device.torch_device)
    distributed.all_reduce(total)
    return [float(value) / distributed.get_world_size() for value in total]
