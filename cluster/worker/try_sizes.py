"""The end of a probe: try further batch sizes in the same process, as the search for the largest one needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.worker import max_batch
from cluster.worker.measured_window import Steps, unrecorded
from cluster.worker.set_up import SessionContext


def try_sizes(context: SessionContext, steps: Steps, window: Mapping[str, Any], known: dict[int, max_batch.Answer] | None) -> None:
    """Record the memory use of the size that just ran, then run the same number of steps with further sizes and record theirs, until one
    does not fit: a fresh process has to say that (max_batch.py).

    `known`: the answers so far, which say what is tried next; None: nothing is. The window record holds all of them. Every rank computes
    the same answers, so all ranks try the same sizes.
    """
    parameters, device = context.parameters, context.device
    first = size = int(window["batch_size"])
    told = dict(known or {})
    while (used := _used_share(context)) is not None:
        answer = max_batch.answer_for(used)
        if size != first and not answer.fits:
            return
        told[size] = answer
        context.recorder.window({**window, "probes": {str(n): [answer.fits, answer.used] for n, answer in told.items()}})
        following = None if known is None else max_batch.next_size(told)
        if following is None or not _can_resize(context):
            return
        size = following
        steps.stop()
        device.release_memory()
        workload = context.train_step.workload = context.resized(size)
        steps.restart(workload)
        steps.clock.begin()
        steps.run(range(1, parameters.warmup_steps + parameters.steps + 1), unrecorded)
        device.synchronize()


def _can_resize(context: SessionContext) -> bool:
    """Whether another batch size can run in this process at no more than what is left in the allocator: no graph was recorded for a
    shape."""
    return context.device.releases_memory and context.parameters.compile == "none" and not context.parameters.hpu_graphs


def _used_share(context: SessionContext) -> float | None:
    """Share (0 to 1) of the device's memory in use at its peak, on the rank that used most; None if the device does not report it."""
    free = context.device.free_share_at_peak()
    return None if free is None else context.ranks.largest(1 - free, context.device.torch_device)
