"""Breakdown of the device's time by groups of kernels, from a Chrome trace of torch.profiler."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

Event = dict[str, Any]

ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
ON_HOST = "cpu_op"

COMMUNICATION, ATTENTION, PRODUCTS = "communication", "attention", "matrix products"

# A name, in lower case, belongs to the first group whose pattern it contains.
_GROUPS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (group, re.compile(pattern))
    for group, pattern in (
        # Inductor's first: it names a kernel by the operators around it, also by collectives, which it never computes itself
        (ATTENTION, r"^triton_tem_\w*attention"),  # its templates: products and attention that it writes itself
        (PRODUCTS, r"^triton_tem_"),
        ("fused by torch.compile", r"^triton_"),
        (COMMUNICATION, r"nccl|gloo:|c10d::|all_?reduce|allgather|all_gather|reduce_?scatter"),
        (ATTENTION, r"flash|fmha|attention|sdpa"),
        ("optimiser", r"multi_tensor|adam|_foreach"),
        (
            PRODUCTS,
            r"gemm|gemv|cutlass|xmma|nvjet|cublas|splitk|aten::(add|b|badd|_int_|_scaled_)?b?mm(_v2)?\b|aten::linear|matmul"
            # cuDNN's convolutions: by their names in fp32 and fp16 (`scudnn`, `s1688cudnn`), by transforms, and torch's by channel
            r"|convol|fprop|dgrad|wgrad|[sh](16816|1688|884)?cudnn|winograd|conv_depthwise",
        ),
        ("normalisation and softmax", r"layer_?norm|batch_?norm|rms_?norm|gammabeta|softmax"),
        ("dropout and random numbers", r"dropout|philox|distribution|bernoulli|random"),
        ("embeddings, gather and scatter", r"embedding|index|gather|scatter"),
        ("copies and casts", r"memcpy|memset|copy|_to_copy|fill|zero"),
        ("reductions", r"reduce|aten::sum|aten::mean"),
        ("elementwise", r"elementwise|vectorized|gelu|relu|tanh|aten::(add|mul|div|sub|where|masked)"),
    )
)
OTHER = "other"


@lru_cache(maxsize=4096)  # a trace has some hundred names, each thousands of times
def group_of(name: str) -> str:
    """The group of a kernel, or of a host operator if the trace has no kernels."""
    lower = name.lower()
    return next((group for group, pattern in _GROUPS if pattern.search(lower)), OTHER)


def breakdown(events: Iterable[Event], steps: int) -> dict[str, Any] | None:
    """The time of `steps` traced steps, by group; None for a trace without operations.

    `events`: the trace's traceEvents; times in microseconds. If kernels ran on a device, only they count; otherwise the host's operators,
    each without the operators it called. Returns `where` (device or host), `steps`, `span_s` (first start to last end, s per step),
    `idle_s` (time in which nothing ran, s per step) and `groups`, the largest first. A group has `group`, `seconds` and `calls` per step,
    and `top`, the name that took most of its time. Groups that ran at the same time both count in full, so the groups and the idle time
    may add up to more than the span. Raises ValueError for less than one step.
    """
    if steps < 1:
        raise ValueError(f"{steps} steps were traced")
    spans = [event for event in events if event.get("ph") == "X" and event.get("dur", 0) > 0]
    operations = [event for event in spans if event.get("cat") in ON_DEVICE]
    where = "device" if operations else "host"
    if operations:
        times = [(str(event["name"]), float(event["dur"])) for event in operations]
    else:
        operations = [event for event in spans if event.get("cat") == ON_HOST]
        times = list(_own_times(operations))
    if not operations:
        return None
    seconds: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    by_name: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, micros in times:
        group = group_of(name)
        seconds[group] += micros / 1e6
        calls[group] += 1
        by_name[group][name] += micros
    begin, end = min(event["ts"] for event in operations), max(event["ts"] + event["dur"] for event in operations)
    return {
        "where": where,
        "steps": steps,
        "span_s": (end - begin) / 1e6 / steps,
        "idle_s": (end - begin - _covered(operations)) / 1e6 / steps,
        "groups": [
            {
                "group": group,
                "seconds": total / steps,
                "calls": calls[group] / steps,
                "top": max(by_name[group], key=lambda name: by_name[group][name])[:120],
            }
            for group, total in sorted(seconds.items(), key=lambda item: -item[1])
        ],
    }


def _covered(events: Sequence[Event]) -> float:
    """Microseconds in which at least one event ran."""
    total, until = 0.0, -math.inf
    for start, end in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _own_times(events: Sequence[Event]) -> Iterable[tuple[str, float]]:
    """(name, microseconds) of each operator without the operators it called. Events of one thread are nested or disjoint."""
    threads: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        threads[event.get("pid"), event.get("tid")].append(event)
    for thread_events in threads.values():
        open_: list[tuple[float, list[Any]]] = []  # (end, [name, own time])
        for event in sorted(thread_events, key=lambda event: (event["ts"], -event["dur"])):
            while open_ and open_[-1][0] <= event["ts"]:
                yield tuple(open_.pop()[1])
            if open_:
                open_[-1][1][1] -= event["dur"]
            open_.append((event["ts"] + event["dur"], [str(event["name"]), float(event["dur"])]))
        for _, item in open_:
            yield item[0], item[1]
