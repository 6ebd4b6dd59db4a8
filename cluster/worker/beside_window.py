"""What a trial does outside its measured window: evaluation before and after, a trace, the cost of the all-reduce, the window record."""

from __future__ import annotations

import time
from typing import Any

from cluster.devices.peaks import peak_of_work
from cluster.trial_layout import TRACE
from cluster.worker.measured_window import Record, Steps, unrecorded
from cluster.worker.set_up import SessionContext
from experiments.components.workload import flops_by_precision


def evaluate(context: SessionContext, when: str) -> float:
    """Record the held-out metrics if the trial asks for them. Returns the seconds that this took (time.time).

    Rank 0 evaluates while the others wait, since replicas are equal. If the model is sharded, every rank takes part, since each holds a
    part of it.
    """
    if not context.parameters.evaluate:
        return 0.0
    started = time.time()
    context.recorder.phase("evaluate")
    if context.ranks.rank == 0 or context.train_step.sharded:
        context.recorder.evaluation(when, context.train_step.evaluate())  # other ranks record into a NullSink
    context.ranks.meet()
    return time.time() - started


def profile(context: SessionContext, steps: Steps, window: dict[str, Any]) -> None:
    """Trace `profile_steps` further steps into a file, and add the breakdown of their time to `window`."""
    parameters = context.parameters
    if not parameters.profile_steps:
        return
    from cluster.worker.measure.profile import read_breakdown, trace

    context.recorder.phase("profile")
    last = window["last_measured_step"]
    traced = range(last + 1, last + parameters.profile_steps + 1)
    steps.clock.begin()
    path = context.out / TRACE
    with trace(path if context.ranks.rank == 0 else None):
        steps.run(traced, unrecorded)
        context.device.synchronize()
    if context.ranks.rank == 0:
        window["profile"] = read_breakdown(path, len(traced))
        context.recorder.note(f"{len(traced)} more steps were traced into {TRACE}")


def measure_communication(context: SessionContext, steps: Steps, window: dict[str, Any]) -> None:
    """Measure how long the gradients' all-reduce takes and how much longer it makes a step; add both to `window`."""
    from torch.nn.parallel import DistributedDataParallel

    parameters = context.parameters
    if not parameters.communication_steps or not isinstance(context.train_step.model, DistributedDataParallel):
        return  # there is no all-reduce to leave out of a step
    if not getattr(context.workload, "steps_alike", True):  # DDP also fails if a step uses other parameters than one under no_sync()
        context.recorder.note("the all-reduce was not measured apart: steps differ in kind, so a few with and without it do not compare")
        return
    from cluster.worker.measure import communication

    context.recorder.phase("communication")
    step = window["last_measured_step"] + parameters.profile_steps

    def run(count: int, record: Record) -> None:
        context.ranks.meet()
        context.device.synchronize()
        steps.clock.begin()
        steps.run(range(step + 1, step + count + 1), record)

    window["communication"] = communication.measure(context.train_step, context.device, parameters.communication_steps, run)


def record_window(context: SessionContext, window: dict[str, Any]) -> None:
    """Add FLOPs per sample and the device's peak FLOP/s for them to `window`, and record it. Does nothing on ranks other than 0."""
    if context.ranks.rank != 0:
        return
    flops, shares = None, None
    try:
        flops = context.workload.flops_per_sample()
        shares = flops_by_precision(context.workload, context.parameters.precision, flops)
    except Exception as error:  # without them there is no MFU, but the trial was measured
        context.recorder.note(f"FLOPs not counted: {type(error).__name__}: {str(error)[:200]}")
    name = context.device.describe()["device_name"]
    peak, source = (None, None) if context.device.emulated or not shares else peak_of_work(name, shares)
    figures = {"flops_per_sample": flops, "flops_by_precision": shares, "peak_flops": peak, "peak_source": source}
    context.recorder.window({**window, **figures})
