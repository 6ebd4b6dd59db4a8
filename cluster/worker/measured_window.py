"""The steps of a trial in order: the first step, the warm-up, the measured window, and further steps for what follows the window."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cluster.worker.compile_cache import compilation
from cluster.worker.measure.loop import TrainStepLike, run_steps
from cluster.worker.measure.records import RankWindow, window_record
from cluster.worker.measure.slowdown import SlowedTrainStep
from cluster.worker.rank_group import Ranks
from cluster.worker.set_up import SessionContext
from cluster.worker.torch_internals import compilations, compile_seconds, cuda_graphs_left_out
from cluster.worker.train.compiling import records_cuda_graphs
from experiments.components.workload import Workload, trains
from experiments.parameters import SYNCHRONOUS, execution
from experiments.step_record import StepTiming

Record = Callable[[StepTiming], None]
KNOWN_BY = 4  # so many finished steps tell how long one takes; the host is up to three ahead of the device


class Steps:
    """Runs a trial's steps with one stream of batches and one clock.

    last: the number of the last step of this stream, 0 before the first. kinds: of its steps so far, where they have kinds.
    """

    def __init__(self, context: SessionContext) -> None:
        """Raises Unsupported for an injected slow-down on a device without a way to keep it busy for a known time."""
        self._device = context.device
        self._synchronous = execution(context.parameters) == SYNCHRONOUS
        self._micro_batches = context.parameters.accumulation_steps
        self.restart(context.workload)
        self.slowed: SlowedTrainStep | None = None
        share = context.parameters.injected_slowdown
        if share:
            self.slowed = SlowedTrainStep(context.train_step, share)
            context.recorder.note(f"every measured step is made {share:.3g} times itself longer, on purpose (injected)")
        self._train_step: TrainStepLike = self.slowed or context.train_step

    def restart(self, workload: Workload) -> None:
        """Start again with the first batch of `workload` and a new clock."""
        self._batches, self.clock = iter(workload.batches()), self._device.clock(synchronous=self._synchronous)
        self.last, self.kinds = 0, set[str]()

    def stop(self) -> None:
        """Release the batches, so that the processes that load them end. Only `restart` may follow."""
        self._batches = iter(())

    def run(self, steps: Iterable[int], record: Record) -> int:
        """Run the steps (1-based numbers) and return this rank's samples. See run_steps."""

        def noted(timing: StepTiming) -> None:
            self.last = timing.step
            if timing.step_kind is not None:
                self.kinds.add(timing.step_kind)
            record(timing)

        return run_steps(steps, self._batches, self._train_step, self.clock, noted, self._micro_batches)


def unrecorded(timing: StepTiming) -> None:
    """Discards a step's timing: the `record` of steps that enter no figure."""


def measure(context: SessionContext, steps: Steps, started_at: float) -> dict[str, Any]:
    """Run the first step, the warm-up and the measured window. Returns the `window` record, which beside_window completes.

    `started_at` (Unix time, s): when the trial began, plus the time that must not count towards the time to its first step. That time is
    measured with time.time, the window with time.perf_counter.
    Raises Diverged, ImpossibleData, and whatever workload and libraries raise.
    """
    parameters, recorder = context.parameters, context.recorder
    recorder.phase("first_step")
    steps.clock.begin()
    warmed = _Stretch(context, range(1, 2), measured=False)
    steps.run(warmed.least, warmed.record)
    to_first_step = time.time() - started_at
    recorder.phase("warmup")
    steps.run(range(2, parameters.warmup_steps + 1), warmed.record)
    if parameters.warmup_s is not None:  # from now on: in the steps before, the device may have waited for what was compiled
        following = warmed.last + 1
        warmed = _Stretch(context, range(following, following + steps_per_round(context)), measured=False)
        steps.run(warmed.numbers(parameters.warmup_s), warmed.record)
    compiling = _compilation(context)
    recorder.phase("measure")
    launched = context.train_step.launched
    first = warmed.last + 1
    rank_window, which = _window(context, steps, range(first, first + parameters.steps))
    if several := context.train_step.launched - launched:
        recorder.note(f"cuda_graph: {several} steps of the window ran without a graph; more warmup_steps would have recorded it before")
    return {
        **window_record(context.ranks.gather(rank_window)),
        "time_to_first_step_s": to_first_step,
        **compiling,
        **context.weights,
        "first_measured_step": first,
        **which,
        "last_learning_step": parameters.warmup_steps + parameters.steps,
        "batch_size": parameters.batch_size,
        "trains": trains(context.workload),
        "execution": execution(parameters),
        "epoch_samples": getattr(context.workload, "epoch_samples", None),
        "tokens_per_sample": getattr(context.workload, "tokens_per_sample", None),
        "spikes_after": parameters.spikes_after,
        **({"injected_slowdown": parameters.injected_slowdown} if parameters.injected_slowdown else {}),
    }


def _compilation(context: SessionContext) -> dict[str, float | None]:
    """What compiling took so far, s: as `compile_seconds` only where nothing was in the cache before. Records which of the two it was."""
    if context.parameters.compile == "none":
        return {"compile_seconds": None}
    if records_cuda_graphs(context.parameters, context.device) and (left_out := cuda_graphs_left_out()):
        context.recorder.note(
            f"compile_mode {context.parameters.compile_mode}: no CUDA graph recorded in {left_out} places; TORCH_LOGS=perf_hints says why"
        )
    how = compilation(context.ranks.gather(context.compile_cache.lookups()))
    context.fact("compilation", how)
    return {"compile_seconds" if how in ("cold", "unknown") else "compile_cached_seconds": compile_seconds()}


def steps_per_round(context: SessionContext) -> int:
    """After how many steps each kind of step has come as often, where they come so; else 1. Rounds begin with the first step."""
    return int(getattr(context.workload, "steps_per_round", 1))


def window_steps(
    least: range, measure_s: float | None, ranks: Ranks, progress: Callable[[], tuple[float, int]], steps_per_round: int = 1
) -> Iterator[int]:
    """The numbers of the window's steps: `least`, and without `measure_s` no more. Else on until it has lasted that many seconds. A warm-up
    with `warmup_s` is counted likewise.

    `progress()`: seconds since the window began, and how many of its steps are known to have finished by then. Rank 0 plans at their mean
    time how many are still needed, and looks again once they are submitted. So there are a few decisions, in which no rank waits for its
    device, and all ranks run the same steps. Where too few have finished to tell what a step takes, it plans at most as many as were
    submitted. Steps are added in whole rounds of `steps_per_round`, so that the mix of kinds stays as it is.
    The last decision sees the time over on the host, which is ahead of the device: the window is never shorter than asked for.
    """
    first, numbers = least.start, least
    while numbers:
        yield from numbers
        if measure_s is None:
            return
        elapsed, finished = progress()
        submitted, following = numbers.stop - first, numbers.stop
        needed = math.ceil(measure_s / elapsed * (finished or submitted)) - submitted
        if finished < KNOWN_BY:
            needed = min(needed, submitted)
        more = 0 if elapsed >= measure_s else math.ceil(max(1, needed) / steps_per_round) * steps_per_round
        numbers = range(following, following + ranks.as_rank_0_says(f"steps after {following - 1}", more))


class _Stretch:
    """Steps that follow one another, from now on: `least` of them, or more until a time is over.

    last: the last one recorded. totals, waits: what each took, and of that waited for the host, s, of those that are recorded.
    compiled: those in which this rank's host compiled, as for batches of another shape, and how long it took to submit them, s. Their time
    is no part of that of `numbers`.
    """

    def __init__(self, context: SessionContext, least: range, *, measured: bool) -> None:
        self._context, self.least, self._measured = context, least, measured
        self.last, self.started = least.start - 1, time.perf_counter()
        self.compiled, self.totals, self.waits = dict[int, float](), dict[int, float](), dict[int, float]()

    def record(self, timing: StepTiming) -> None:
        self.last = timing.step
        self.totals[timing.step], self.waits[timing.step] = timing.total_s, timing.data_wait_s
        self._context.recorder.step(timing, measured=self._measured, more=self._context.train_step.diagnostics(timing.step))

    def numbers(self, seconds: float | None) -> Iterator[int]:
        """See `window_steps`."""
        for number in window_steps(self.least, seconds, self._context.ranks, self._progress, steps_per_round(self._context)):
            before, began = compilations(), time.perf_counter()
            yield number
            if compilations() > before:  # the step is submitted by now
                self.compiled[number] = time.perf_counter() - began

    def _progress(self) -> tuple[float, int]:
        counted = self.last + 1 - self.least.start - len(self.compiled)
        if any(step > self.last for step in self.compiled):
            counted = 0  # the device may have finished earlier steps while the host compiled, so that what a step takes is not known
        compiling = sum(self.totals.get(step, on_host) for step, on_host in self.compiled.items())
        return max(1e-6, time.perf_counter() - self.started - compiling), counted


def _without_rate(context: SessionContext, window: _Stretch) -> tuple[list[int], list[int]]:
    """(steps of the window in which any rank compiled, steps that count in no rate for that: where steps differ in kind, whole rounds)."""
    compiled = sorted({step for steps in context.ranks.gather(tuple(window.compiled)) for step in steps})
    size = steps_per_round(context)
    rounds = {(step - 1) // size for step in compiled}  # rounds begin with the first step of all
    return compiled, [step for step in window.totals if (step - 1) // size in rounds]


def _window(context: SessionContext, steps: Steps, least: range) -> tuple[RankWindow, dict[str, Any]]:
    """Run this rank's measured steps, from a common start of all ranks until its device is done. Returns also which steps these were."""
    parameters, device = context.parameters, context.device
    if steps.slowed:
        steps.slowed.start()
    context.ranks.meet()
    device.reset_peak_memory()
    device.synchronize()
    energy = device.energy_j()
    window = _Stretch(context, least, measured=True)
    steps.clock.begin()
    samples = steps.run(window.numbers(parameters.measure_s), window.record)
    device.synchronize()
    wall = time.perf_counter() - window.started
    energy_end = device.energy_j()
    compiled, left_out = _without_rate(context, window)
    rank_window = RankWindow(
        rank=context.ranks.rank,
        samples=samples,
        wall_s=wall,
        peak_memory_bytes=device.peak_memory_bytes(),
        alloc_retries=device.alloc_retries(),
        energy_j=None if energy is None or energy_end is None else energy_end - energy,
        left_out_s=sum(window.totals[step] for step in left_out),
        data_wait_s=sum(window.waits[step] for step in window.waits.keys() - set(left_out)),
    )
    return rank_window, {"last_measured_step": window.last, "compiled_steps": compiled, "left_out_steps": left_out}
