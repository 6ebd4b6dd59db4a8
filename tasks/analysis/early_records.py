"""What earlier versions of the worker recorded, brought to what the words mean today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.summary import Value
from tasks.sweep.early_plans import RENAMED

_IN_ONE_PRECISION = ("plain", "fp8_simulated", "fp8_simulated_switchback")


def window_of_today(window: Mapping[str, Any] | None, parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A window record without a peak that is of another precision than what computed: early ones divided fp8 and int8 by bf16's."""
    if window is None or "flops_by_precision" in window or parameters.get("linear", "plain") in _IN_ONE_PRECISION:
        return window
    return {**window, "peak_flops": None}


def summary_of_today(summary: Mapping[str, Value], environment: Mapping[str, Any]) -> dict[str, Value]:
    """A result's summary, in which early workers called the service time of queued batches latency."""
    if "tree" in environment:
        return dict(summary)
    return {RENAMED.get(name, name): value for name, value in summary.items()}
