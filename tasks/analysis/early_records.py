"""What earlier versions of the worker recorded, brought to what the words mean today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from cluster.journal.lines import Record
from experiments.stats.steady_state import LEAST
from experiments.summary import Value
from experiments.trial import Trial
from tasks.sweep.early_plans import RENAMED

EARLY_FLOPS = (
    "its FLOPs were counted without the attention of BridgeTower's vision tower, so its MFU and TFLOP/s are lower than by today's count: "
    "Large's by 4 %, Base's by 3 % (docs/metrics.md)"
)
_WITHOUT_ATTENTION = ("bridgetower", "bridgetower_inference")
_IN_ONE_PRECISION = ("plain", "fp8_simulated", "fp8_simulated_switchback")


def window_of_today(window: Mapping[str, Any] | None, parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A window record without a peak that is of another precision than what computed: early ones divided fp8 and int8 by bf16's."""
    if window is None or "flops_by_precision" in window or parameters.get("linear", "plain") in _IN_ONE_PRECISION:
        return window
    return {**window, "peak_flops": None}


def notes_of_today(notes: Sequence[str], window: Mapping[str, Any], workload: str) -> list[str]:
    """A trial's notes, and one where its FLOPs are by the early count."""
    early = workload in _WITHOUT_ATTENTION and bool(window.get("flops_per_sample")) and "flop_count" not in window
    return [*notes, *([EARLY_FLOPS] if early else [])]


def summary_of_today(summary: Mapping[str, Value], environment: Mapping[str, Any]) -> dict[str, Value]:
    """A result's summary, in which early workers called the service time of queued batches latency, and too few steps not settled."""
    found = dict(summary) if "tree" in environment else {RENAMED.get(name, name): value for name, value in summary.items()}
    steps = found.get("measured_steps")
    if steps is not None and steps < LEAST and "settled" in found:
        found["settled"] = None
    return found


def traced_kinds(trial: Trial, window: Mapping[str, Any], steps: Sequence[Record], count: int) -> list[str]:
    """The kinds of the `count` steps that an early worker traced, which it did not record: those right after the window, in the order that
    the seed gives. [] where that is not known: of another workload than FLAVA, or where `steps` were not of that order."""
    last = window.get("last_measured_step")
    if trial.workload != "flava" or trial.parameters.get("accumulation_steps", 1) != 1 or not last:
        return []
    from experiments.workloads.flava.batches import kinds

    order = dict(enumerate(islice(kinds(trial.parameters["seed"], balanced=trial.parameters["kinds"] == "balanced"), last + count), 1))
    if any(order.get(step["step"]) != step.get("step_kind") for step in steps):
        return []
    return [order[number] for number in range(last + 1, last + count + 1)]
