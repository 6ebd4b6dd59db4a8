"""The summary of one trial, computed from its raw steps. The worker and every later report use the same function.

experiments/metrics.py describes each metric and says which direction is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from experiments import step_record
from experiments.stats.estimate import percentile
from experiments.stats.loss_spikes import Rule, find_spikes
from experiments.stats.steady_state import steady_state
from experiments.stats.step_interval import step_interval
from experiments.step_record import RMS, TOTAL

Value = float | int | bool | None
Summary = dict[str, Value]

PARTS = tuple(name.removesuffix("_s") for name in step_record.PARTS)  # `<part>_s` in a step, `<part>_share` here
ENERGY_WINDOW_S = 10.0  # s; a shorter window is of the order of the energy counter's own updates
PERCENTILES = {"p50": 50, "p90": 90, "p99": 99}
P99_BATCHES = 1000  # so that ten lie beyond it
# What a batch's time is called, by how inference is executed (`execution` in experiments/components/inference.py)
BATCH_TIMES = {"queued": "service_time", "synchronous": "latency"}
# Rates of tokens, of workloads that say how many a sample has; _low and _high: of throughput's interval
TOKENS = tuple(f"tokens_per_s{by}{end}" for by in ("", "_per_device") for end in ("", "_low", "_high"))
COMMUNICATION = ("communication_s", "communication_exposed_s", "communication_share")
SPIKES = ("loss_spikes", "rms_spikes", "loss_spikes_explained")
_FROM_WINDOW = (
    *("peak_memory_bytes", "alloc_retries", "time_to_first_step_s"),
    *("compile_seconds", "compile_cached_seconds", "trace_seconds", "batch_search_seconds"),
)


def summarise(
    steps: Sequence[Mapping[str, Any]], window: Mapping[str, Any] | None, evaluations: Iterable[Mapping[str, Any]] = ()
) -> Summary:
    """The summary metrics of one attempt, from its journal's `step`, `window` and `evaluation` records; None where unknown.

    throughput: samples/s of the measured window, the samples of all ranks / the longest wall time of a rank. If the trial ended early and
    has no window record: the measured steps' samples / their times. compiled_steps: steps of the window in which torch compiled; None of
    early trials, which did not note it. left_out_steps: how many are left out of this and of all other rates, times and shares for that
    (`apart_from_compilation`); energy is not known then. measured_steps: those that count.
    throughput_low/_high: 95 % interval over steps (`step_interval`), None where they are too few to tell. effective_steps: as many
    independent steps would give an interval as narrow.
    throughput_settled: samples/s from the step on at which step times settled. drift: relative change of the step times from there on, or
    over the window where they never settle (`steady_state`). step_time_*: s. *_share: part of the measured time, 0 to 1.
    forward_backward_share has, without training, all that lies behind the copy.
    data_wait_share is of rank 0, as all of a step is; data_wait_worst_share, on several devices only, is of the rank that waits most: its
    loader may hold up all of them, which then wait for it in forward_backward.
    loader_wait_share: the host's time in the loader / the measured time; beside the parts, since the device may compute meanwhile.
    service_time_* and latency_*, without training only: percentiles of a step's time without `data_wait_s`, from the batch on the host to
    its output; service_time_* of batches that queue on the device, latency_* of batches one at a time. p99 from 1,000 batches on.
    *_per_sample_s: median over batches of this time / samples of the batch (such as images). *_per_token_s: median of this time / tokens
    of a sample, of workloads that say how many: of decoding, the time between two tokens.
    tokens_per_s, tokens_per_s_per_device: throughput * tokens of a sample, of these workloads; the latter / devices.
    communication_*, on several devices only. communication_s: one all-reduce of all gradients without other work.
    communication_exposed_s: time of forward and backward with the all-reduce less that without it, at least 0. communication_share:
    communication_exposed_s / step time.
    mfu = flops_per_sample * throughput / (devices * peak FLOP/s of a device), 0 to 1; the peak is of the precisions that compute.
    energy_j_per_sample, mean_power_w: of a window of at least 10 s.
    tflops_per_device = flops_per_sample * throughput / devices / 1e12.
    epoch_time_s: s for one pass over the data set that the workload names, at this throughput.
    batch_size: samples per device and micro-batch. first_loss, final_loss: of the first and the last step of the learning rate's schedule,
    None where that is not finite. eval_<metric>_before/_after: held-out evaluation.
    loss_spikes, rms_spikes, loss_spikes_explained: counts, if spikes_after is set and, of loss spikes, enough losses are known; the latter
    two for the first tensor whose RMS_t was recorded. See stats.loss_spikes.

    Raises ValueError, naming the step, for impossible measurements: a negative or non-finite time, a step of no time, samples <= 0, or
    step numbers that do not rise.
    """
    _check(steps)
    measured = [step for step in steps if step["measured"]]
    result: Summary = dict.fromkeys(NAMES)
    learning = _learning(steps, window)
    if learning:
        result["first_loss"] = _finite(learning[0].get("loss"))
        result["final_loss"] = _finite(learning[-1].get("loss"))
    counted, left_out = apart_from_compilation(measured, window)
    result["measured_steps"] = len(counted)
    if window is not None and "compiled_steps" in window:
        result |= {"compiled_steps": len(window["compiled_steps"]), "left_out_steps": len(left_out)}
    if counted:
        result |= _timing(counted, window, left_out)
    if window is not None:
        result |= _window(window, result)
        if counted and not window.get("trains", True):
            result |= _without_optimizer(result)
            result |= _batch_times(counted, BATCH_TIMES[window.get("execution", "queued")], window.get("tokens_per_sample"))
        result |= _spikes(learning, window.get("spikes_after"))
    for evaluation in evaluations:
        when = evaluation["when"]
        result |= {f"eval_{name}_{when}": _finite(value) for name, value in evaluation["metrics"].items()}
    return result


NAMES = (
    "throughput",
    "throughput_low",
    "throughput_high",
    "throughput_settled",
    "effective_steps",
    "measured_steps",
    "compiled_steps",
    "left_out_steps",
    "first_measured_step",
    "samples",
    "step_time_p05_s",
    "step_time_median_s",
    "step_time_p90_s",
    *(f"{name}_{rank}_s" for name in BATCH_TIMES.values() for rank in (*PERCENTILES, "per_sample", "per_token")),
    *(f"{part}_share" for part in PARTS),
    "loader_wait_share",
    "data_wait_worst_share",
    "settled",
    "settled_at_step",
    "drift",
    *_FROM_WINDOW,
    *COMMUNICATION,
    *SPIKES,
    "mean_power_w",
    "energy_j_per_sample",
    *TOKENS,
    "mfu",
    "tflops_per_device",
    "tflops_per_device_low",
    "tflops_per_device_high",
    "epoch_time_s",
    "batch_size",
    "first_loss",
    "final_loss",
    "eval_loss_before",
    "eval_loss_after",
)


def _learning(steps: Sequence[Mapping[str, Any]], window: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    """The steps up to the learning rate's end; those after it only make warm-up or window last (`warmup_s`, `measure_s`)."""
    last = (window or {}).get("last_learning_step")
    return steps if last is None else [step for step in steps if step["step"] <= last]


def apart_from_compilation(
    measured: Sequence[Mapping[str, Any]], window: Mapping[str, Any] | None
) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
    """The measured steps that count, and those that do not since a rank compiled in them, or in one of their round, as for a batch of
    another shape: compiling is no part of a rate. All count where none would be left."""
    out = set((window or {}).get("left_out_steps", ()))
    counted = [step for step in measured if step["step"] not in out]
    return (counted, [step for step in measured if step["step"] in out]) if counted else (measured, [])


def _check(steps: Sequence[Mapping[str, Any]]) -> None:
    previous = 0
    for step in steps:
        number = step["step"]
        if number <= previous:
            raise ValueError(f"step {number} follows step {previous}: step numbers must rise")
        previous = number
        if not step["samples"] > 0:
            raise ValueError(f"step {number}: samples is {step['samples']}, must be more than 0")
        for name in (*step_record.PARTS, "loader_wait_s", TOTAL):
            seconds = step.get(name)
            if seconds is None and name != TOTAL:
                continue
            if seconds is None or not math.isfinite(seconds) or seconds < 0:
                raise ValueError(f"step {number}: {name} is {seconds}, must be 0 or more")
        if step[TOTAL] == 0:
            raise ValueError(f"step {number}: {TOTAL} is 0, a step takes time")


def _timing(measured: Sequence[Mapping[str, Any]], window: Mapping[str, Any] | None, left_out: Sequence[Mapping[str, Any]] = ()) -> Summary:
    times = [float(step[TOTAL]) for step in measured]
    samples = [float(step["samples"]) for step in measured]
    kinds = [step.get("step_kind") for step in measured]
    interval = step_interval(samples, times, kinds=kinds)
    over_steps = interval.estimate
    throughput = over_steps.value if window is None else _window_throughput(window, left_out)
    # The steps give the relative spread, the window gives the value: the window also includes time between steps.
    scale = throughput / over_steps.value
    steady = steady_state(times, kinds=kinds)
    result: Summary = {
        "throughput": throughput,
        "throughput_low": over_steps.low * scale if interval.known else None,
        "throughput_high": over_steps.high * scale if interval.known else None,
        "effective_steps": interval.effective_steps,
        "first_measured_step": measured[0]["step"],
        "samples": int(sum(samples)),
        "step_time_p05_s": percentile(times, 5),
        "step_time_median_s": percentile(times, 50),
        "step_time_p90_s": percentile(times, 90),
        "settled": steady.settled,
        "settled_at_step": None if steady.start is None else measured[steady.start]["step"],
        "drift": steady.drift,
    }
    if steady.start is not None:
        settled_rate = throughput_of(samples[steady.start :], times[steady.start :])
        result["throughput_settled"] = throughput if steady.start == 0 else settled_rate * scale
    for part in (*PARTS, "loader_wait"):
        spent = [step.get(f"{part}_s") for step in measured]
        known_parts = [seconds for seconds in spent if seconds is not None]
        result[f"{part}_share"] = math.fsum(known_parts) / math.fsum(times) if len(known_parts) == len(spent) else None
    return result


def _without_optimizer(shares: Summary) -> Summary:
    """What lies behind the forward pass where nothing is trained: the wait for its output, which is the forward pass's."""
    forward, rest = shares["forward_backward_share"], shares["optimizer_share"]
    return {} if forward is None or rest is None else {"forward_backward_share": forward + rest, "optimizer_share": 0.0}


def throughput_of(samples: Sequence[float], times: Sequence[float]) -> float:
    """Samples/s: the sum of `samples` (n,) / the sum of `times` (n,) in s."""
    return math.fsum(samples) / math.fsum(times)


def _window_throughput(window: Mapping[str, Any], left_out: Sequence[Mapping[str, Any]] = ()) -> float:
    """Samples/s of the window: all ranks' samples over the longest wall time, both without the steps that are left out.

    Raises ValueError for a rank of no time or no samples, and where what is left out took all of the time.
    """
    ranks = window.get("ranks") or [{"rank": 0, "samples": window["samples"], "wall_s": window["wall_s"]}]
    for rank in ranks:
        if not rank["wall_s"] > 0 or not rank["samples"] > 0:
            raise ValueError(f"the window of rank {rank['rank']}: {rank['samples']} samples in {rank['wall_s']} s cannot be")
    samples = math.fsum(rank["samples"] for rank in ranks) - math.fsum(step["samples"] for step in left_out)
    wall_s = max(float(rank["wall_s"]) - (rank.get("left_out_s", 0.0) if left_out else 0.0) for rank in ranks)
    if left_out and not (wall_s > 0 and samples > 0):
        raise ValueError(f"{len(left_out)} steps in which torch compiled leave {samples:g} samples in {wall_s:g} s of the window")
    return samples / wall_s


def _window(window: Mapping[str, Any], timing: Mapping[str, Any]) -> Summary:
    result: Summary = {name: window.get(name) for name in _FROM_WINDOW}
    if (
        window["wall_s"] >= ENERGY_WINDOW_S and (energy := window.get("energy_j")) is not None and not timing["compiled_steps"]
    ):  # what compiling took of it is not known
        result |= {"energy_j_per_sample": energy / window["samples"], "mean_power_w": energy / window["wall_s"]}
    flops, peak = window.get("flops_per_sample"), window.get("peak_flops")
    devices, throughput = len(window.get("ranks") or [0]), timing["throughput"]
    result["mfu"] = flops * throughput / (devices * peak) if flops and peak and throughput else None
    for end in ("", "_low", "_high"):
        rate = timing[f"throughput{end}"]
        result[f"tflops_per_device{end}"] = flops * rate / devices / 1e12 if flops and rate else None
    if tokens := window.get("tokens_per_sample"):
        for end in ("", "_low", "_high"):
            rate = timing[f"throughput{end}"]
            result[f"tokens_per_s{end}"] = tokens * rate if rate else None
            result[f"tokens_per_s_per_device{end}"] = tokens * rate / devices if rate else None
    epoch = window.get("epoch_samples")
    result["epoch_time_s"] = epoch / throughput if epoch and throughput else None
    result["batch_size"] = window.get("batch_size")
    result["data_wait_worst_share"] = _worst_wait(window.get("ranks") or [])
    if communication := window.get("communication"):
        exposed = max(0.0, communication["with_s"] - communication["without_s"])
        result |= zip(COMMUNICATION, (communication["alone_s"], exposed, exposed / communication["step_s"]), strict=True)
    return result


def _worst_wait(ranks: Sequence[Mapping[str, Any]]) -> float | None:
    """Of several ranks the largest part of its steps' time that a device waited for its host; None for one, and for early trials."""
    if len(ranks) < 2 or any("data_wait_s" not in rank for rank in ranks):
        return None
    steps_s = [(rank["data_wait_s"], rank["wall_s"] - rank.get("left_out_s", 0.0)) for rank in ranks]
    return max((wait_s / counted_s for wait_s, counted_s in steps_s if counted_s > 0), default=None)


def _batch_times(measured: Sequence[Mapping[str, Any]], name: str, tokens: int | None) -> Summary:
    """`<name>_p50_s` and so on, over batches of samples of so many tokens; {} if a step does not record its wait."""
    waits = [step.get("data_wait_s") for step in measured]
    times = [step[TOTAL] - wait for step, wait in zip(measured, waits, strict=True) if wait is not None]
    if len(times) < len(measured):
        return {}
    by_sample = [time / step["samples"] for time, step in zip(times, measured, strict=True)]
    result: Summary = {f"{name}_{rank}_s": percentile(times, percent) for rank, percent in PERCENTILES.items()}
    if len(times) < P99_BATCHES:
        result[f"{name}_p99_s"] = None
    if tokens:
        result[f"{name}_per_token_s"] = percentile(times, 50) / tokens
    return {**result, f"{name}_per_sample_s": percentile(by_sample, 50)}


def rms_names(steps: Iterable[Mapping[str, Any]]) -> list[str]:
    """The tensors whose RMS_t the steps record, in the order of their first occurrence."""
    return [name.removeprefix(RMS) for name in dict.fromkeys(chain.from_iterable(steps)) if name.startswith(RMS)]


def _spikes(steps: Sequence[Mapping[str, Any]], after: int | None) -> Summary:
    """The counts named in SPIKES; {} if the trial does not look for spikes. Those of loss spikes are None if too few losses are known."""
    if after is None:
        return {}

    def series(name: str) -> list[float]:
        return [math.nan if (value := _finite(step.get(name))) is None else value for step in steps]

    tensors = {name: series(RMS + name) for name in rms_names(steps)}
    losses = [math.inf if math.isnan(loss) and _not_a_number(step) else loss for step, loss in zip(steps, series("loss"), strict=True)]
    spikes = find_spikes([step["step"] for step in steps], losses, tensors, Rule(after=after))
    counts: Summary = {"loss_spikes": len(spikes.loss) if spikes.judged else None}
    for first in list(tensors)[:1]:
        counts |= {"rms_spikes": len(spikes.tensors[first])}
        counts |= {"loss_spikes_explained": len(spikes.explained(first)) if spikes.judged else None}
    return counts


def _not_a_number(step: Mapping[str, Any]) -> bool:
    """True if the step had a loss and it was not finite: the journal has null in its place, and its text beside that."""
    return step.get("loss") is not None or bool(step.get("loss_text"))


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
