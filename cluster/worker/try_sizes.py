"""The end of a probe: try further batch sizes in the same process, as the search for the largest one needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.worker import max_batch
from cluster.worker.measured_window import Steps, unrecorded
from cluster.worker.set_up import SessionContext
from cluster.worker.train.step_graph import LAUNCHED


def try_sizes(context: SessionContext, steps: Steps, window: Mapping[str, Any], known: dict[int, max_batch.Answer] | None) -> None:
    """Run the size that just ran once more, from its first batch, and record the memory that it took; then likewise further sizes, once
    each, until one does not fit: a fresh process has to say that (max_batch.py).

    Once more, since the optimiser's states come to be in the first steps: what needs most memory may have been before them, such as
    FLAVA's pairs. With `cuda_graph` as often as it takes until the graph of each shape is recorded.

    `known`: the answers so far, which say what is tried next; None: nothing is. The window record holds all of them. Every rank computes
    the same answers, so all ranks try the same sizes.
    """
    parameters, device = context.parameters, context.device
    first = size = int(window["batch_size"])
    told = dict(known or {})
    if device.free_share_at_peak() is None:
        return
    for _ in range(LAUNCHED if parameters.cuda_graph else 1):
        _run_from_the_first(context, steps)
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
        context.train_step.workload = context.resized(size)
        _run_from_the_first(context, steps)


def _run_from_the_first(context: SessionContext, steps: Steps) -> None:
    """As many steps as the trial has, from the first batch of the workload that the train step has now."""
    steps.stop()
    steps.restart(context.workload)
    steps.clock.begin()
    steps.run(range(1, context.parameters.warmup_steps + context.parameters.steps + 1), unrecorded)
    context.device.synchronize()


def _can_resize(context: SessionContext) -> bool:
    """Whether another batch size can run in this process beside what is left in the allocator: nothing was recorded for a shape."""
    parameters = context.parameters
    recorded = parameters.compile != "none" or parameters.cuda_graph or parameters.hpu_graphs
    return context.device.releases_memory and not recorded


def _used_share(context: SessionContext) -> float | None:
    """Share (0 to 1) of the device's memory in use at its peak, on the rank that used most; None if the device does not report it."""
    free = context.device.free_share_at_peak()
    return None if free is None else context.ranks.largest(1 - free, context.device.torch_device)
