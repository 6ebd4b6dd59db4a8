"""What a trial does outside its measured window: evaluation before and after, a trace, the cost of the all-reduce, the window record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.devices.peaks import clock_of_peak, peak_of_work
from cluster.trial_layout import TRACE
from cluster.worker.measured_window import Record, Steps, steps_per_round, unrecorded
from cluster.worker.outcome import line
from cluster.worker.set_up import SessionContext
from cluster.worker.torch_internals import alloc_conf
from experiments.components.flop_count import FLOP_COUNT
from experiments.components.workload import attention_flops, flops_by_precision
from experiments.step_record import StepTiming, whole_rounds

if TYPE_CHECKING:
    from cluster.worker.measure.matrix_shapes import TracedProducts
    from cluster.worker.measure.profile import ReadTrace
    from cluster.worker.measure.trace_parts import StepParts

_NOT_THE_MIX = "they are not as many of each kind of step, and FLOPs are of the mix of all kinds"


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


def profile(context: SessionContext, steps: Steps, window: dict[str, Any]) -> list[TracedProducts | None]:
    """Trace `profile_steps` further steps on every rank, and add what their time went to to `window`, and of which kinds they were.

    Rank 0 keeps its trace as a file. Those of the others are read and dropped. Returns the matrix products of every rank, of one without a
    trace None. That tracing fails, as for want of memory, is said, and the trial counts, since it was measured before. Of several ranks
    one may fail in a step where another waits for it: that ends their processes, unless all of them fail (complete_measured). Nothing may
    run steps afterwards: the model may be within one.
    """
    if not context.parameters.profile_steps:
        return []
    from cluster.worker.measure.profile import ReadTrace

    context.recorder.phase("profile")
    traced, count = list[StepTiming](), context.parameters.profile_steps
    told, why = ReadTrace(None), None
    try:
        kept = context.out / TRACE if context.ranks.rank == 0 else None
        told = _trace_steps(context, steps, count, traced, kept)
    except Exception as error:
        if len(traced) < count and not context.ranks.all_say("the trace failed"):
            raise
        why = _text(error)
        context.recorder.note(f"no steps were traced: {why}")
        if len(traced) < count:  # ranks may have failed in different collectives, so none may follow
            return [None] * context.ranks.world_size
        traced = []
    parts, why = told.parts, why if told.unread is None else _text(told.unread)
    ranks = context.ranks.gather((parts, told.products, why))
    all_products = [products for _, products, _ in ranks]
    if context.ranks.rank != 0 or not traced:
        return all_products
    for rank, (_, _, why) in enumerate(ranks[1:], 1):  # rank 0 has said its own
        if why is not None:
            context.recorder.note(f"rank {rank}: its trace of the further steps tells nothing: {why}")
    if told.not_kept is None:
        context.recorder.note(f"{len(traced)} more steps were traced into {TRACE}")
    else:
        context.recorder.note(f"{len(traced)} more steps were traced, and their trace is not kept: {_text(told.not_kept)}")
        window["trace_not_kept"] = _text(told.not_kept)  # so that nobody takes an earlier attempt's for it
    found = window["profile"] = told.breakdown and told.breakdown | _kinds_told(traced)
    if found is None or parts is None:
        return all_products
    if not _like_the_window(context, steps, traced[-parts.steps :]):
        rounds = steps_per_round(context)
        enough = f"; profile_steps={rounds + 1} are a whole round" if parts.steps % rounds else ""
        context.recorder.note(f"what the traced steps reached is not known: {_NOT_THE_MIX}{enough}")
        return all_products
    window["profile"] = {**found, **_of_ranks(context, [(one, why) for one, _, why in ranks])}
    return all_products


def _of_ranks(context: SessionContext, told: Sequence[tuple[StepParts | None, str | None]]) -> dict[str, Any]:
    """`ranks`, the parts of each rank's steps, and where some have none `missing_ranks`, with the reason where that is known."""
    ranks = [{"rank": rank, **parts.record()} for rank, (parts, _) in enumerate(told) if parts is not None]
    missing = [{"rank": rank, "why": why} for rank, (parts, why) in enumerate(told) if parts is None]
    found: dict[str, Any] = {"ranks": [_without_allocator(one) if _segments_grow(context) else one for one in ranks]}
    return found | ({"missing_ranks": missing} if missing else {})


def launched_products(
    context: SessionContext, steps: Steps, window: dict[str, Any], products: list[TracedProducts | None]
) -> list[TracedProducts | None]:
    """`products` of the traced steps, or, where those were replays of CUDA graphs, of further steps without the graphs: replays have no
    operators. The trial's last steps, since its graphs are released for them.

    Empty where these steps fail, which is said: the trial was measured before them. Several ranks, which inference alone can have beside
    its graphs, keep their `products`: one of them might fail where another waits for it.
    """
    traced = (window.get("profile") or {}).get("ranks")
    if not traced or not context.train_step.recorded or context.ranks.world_size > 1:
        return products
    context.recorder.phase("rates")
    count = steps_per_round(context)
    if count > 1 or context.parameters.profile_steps > 1:
        count += 1  # the first of several does not count
    try:
        context.device.synchronize()
        context.train_step.leave_graphs_out()
        context.device.release_memory()  # what the graphs held
        again = list[StepTiming]()
        found = _trace_steps(context, steps, count, again)
        if not _like_the_window(context, steps, again[1:] or again):
            context.recorder.note(f"matrix products of recorded steps: not known: {_NOT_THE_MIX}")
            return []
        return [found.products]
    except Exception as error:
        context.recorder.note(f"matrix products of recorded steps: not traced: {_text(error)}")
        return []


def _text(error: Exception) -> str:
    """One line; an OSError's with its file, which says of which disk it is."""
    return line(f"{type(error).__name__}: {error}")


def _segments_grow(context: SessionContext) -> bool:
    """Whether memory comes from CUDA by calls of its driver: the profiler records none of these."""
    return context.parameters.expandable_segments or "expandable_segments:True" in (alloc_conf() or "")


def _without_allocator(rank: dict[str, float]) -> dict[str, float]:
    """The parts, with the wait for the allocator within that for launches: what could be seen of it is not all."""
    rest = {name: value for name, value in rank.items() if name != "allocator_s"}
    return rest | {"launch_s": rank["launch_s"] + rank["allocator_s"]}


def _trace_steps(context: SessionContext, steps: Steps, count: int, timings: list[StepTiming], kept: Path | None = None) -> ReadTrace:
    """Trace `count` steps, of which those that count begin with a round of kinds, and return what the trace tells: of one that cannot be
    read nothing, and why is said, since the trial was measured before it.

    `timings`: to it this rank's are added one by one; where a step fails, those before it are there. `kept`: where the trace is kept.
    """
    from cluster.worker.measure.profile import read_trace, trace_file

    with trace_file(context.out / TRACE) as path:
        _run_traced(context, steps, count, path, timings)
        told = read_trace(path, [timing.samples for timing in timings], kept)
    if told.unread is not None:
        context.recorder.note(f"the trace of the further steps could not be read: {_text(told.unread)}")
    return told


def _run_traced(context: SessionContext, steps: Steps, count: int, path: Path, timings: list[StepTiming]) -> None:
    """Run the steps and write their trace to `path`."""
    from cluster.worker.measure.profile import MarkedClock, trace

    clock = steps.clock
    before = -(steps.last + (1 if count > 1 else 0)) % steps_per_round(context)  # the first of several does not count
    if before:
        clock.begin()
        steps.run(range(steps.last + 1, steps.last + before + 1), unrecorded)
    clock.begin()
    steps.clock = MarkedClock(clock)
    try:
        with trace(path):
            steps.run(range(steps.last + 1, steps.last + count + 1), timings.append)
            context.device.synchronize()
    finally:
        steps.clock = clock


def _kinds_told(traced: Sequence[StepTiming]) -> dict[str, Any]:
    """The kind of each traced step, also of the first, which does not count; {} where steps have no kinds."""
    kinds = [timing.step_kind for timing in traced]
    return {"step_kinds": kinds} if any(kinds) else {}


def _like_the_window(context: SessionContext, steps: Steps, counted: Sequence[StepTiming]) -> bool:
    """Whether these steps are the same mix of kinds as all steps, of which the FLOPs of a sample are."""
    if not steps.kinds:
        return getattr(context.workload, "steps_alike", True)
    return whole_rounds([timing.step_kind for timing in counted], steps.kinds, context.parameters.accumulation_steps)


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
    step = steps.last

    def run(count: int, record: Record) -> None:
        context.ranks.meet()
        context.device.synchronize()
        steps.clock.begin()
        steps.run(range(step + 1, step + count + 1), record)

    window["communication"] = communication.measure(context.train_step, context.device, parameters.communication_steps, run)


def record_window(context: SessionContext, window: dict[str, Any]) -> None:
    """Record `window`, on rank 0 alone: the others have only their own part of it."""
    if context.ranks.rank == 0:
        context.recorder.window(window)


def add_flops(context: SessionContext, window: dict[str, Any]) -> None:
    """Add FLOPs per sample and the device's peak FLOP/s for them to `window`; with traces also what those are held against. Does nothing on
    ranks other than 0."""
    if context.ranks.rank != 0:
        return
    flops, shares, of_attention = None, None, None
    try:
        flops = context.workload.flops_per_sample()
        shares = flops_by_precision(context.workload, context.parameters.precision, flops)
        of_attention = attention_flops(context.workload) if flops else None
    except Exception as error:  # without them there is no MFU, but the trial was measured
        context.recorder.note(f"FLOPs not counted: {_text(error)}")
    name = context.device.describe()["device_name"]
    known = {} if context.device.emulated else shares or {}
    peak, source = peak_of_work(name, known)
    window |= {"flops_per_sample": flops, "flops_by_precision": shares, "flop_count": FLOP_COUNT, "peak_flops": peak, "peak_source": source}
    if context.parameters.profile_steps:
        window |= {"attention_flops_per_sample": of_attention, "peak_clock_mhz": clock_of_peak(name, known)}
