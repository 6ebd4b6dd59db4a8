"""A probe's end: other batch sizes in the same process, for as long as the search for the largest one wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.worker import max_batch
from cluster.worker.measured_window import Steps, unrecorded
from cluster.worker.set_up import SessionContext


def try_sizes(context: SessionContext, steps: Steps, window: Mapping[str, Any], known: dict[int, max_batch.Probed]) -> None:
    """Record what the size that just ran took of the device's memory, then that of other sizes, after as many steps of each.

    The window record holds the answers so far. Every rank comes to the same ones, so all of them try the same sizes.
    """
    parameters, device = context.parameters, context.device
    size = int(window["batch_size"])
    while (used := _used_share(context)) is not None:
        known[size] = max_batch.answer(used)
        context.recorder.window({**window, "probes": {str(n): [found.fits, found.used] for n, found in known.items()}})
        wanted = max_batch.next_size(known)
        if wanted is None or not _can_resize(context):
            return
        size = wanted
        steps.stop()
        device.release_memory()
        workload = context.train_step.workload = context.resized(size)
        steps.restart(workload)
        steps.clock.begin()
        steps.run(range(1, parameters.warmup_steps + parameters.steps + 1), unrecorded)
        device.synchronize()


def _can_resize(context: SessionContext) -> bool:
    """Whether another batch size in this process takes what it takes in one of its own: nothing was recorded for a shape."""
    return context.device.releases_memory and context.parameters.compile == "none" and not context.parameters.hpu_graphs


def _used_share(context: SessionContext) -> float | None:
    """Of the device's memory at its peak, on the rank that used most; None where the device does not tell."""
    free = context.device.free_share_at_peak()
    return None if free is None else context.ranks.largest(1 - free, context.device.torch_device)
