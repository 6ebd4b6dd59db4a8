"""Where the device's time goes, from a Chrome trace of torch.profiler: kernels put into groups a person thinks in. Pure arithmetic."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

Event = dict[str, Any]

ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
ON_HOST = "cpu_op"

# The first pattern that a name contains, in lower case, is its group.
_GROUPS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (group, re.compile(pattern))
    for group, pattern in (
        ("communication", r"nccl|gloo:|c10d::|all_?reduce|allgather|all_gather|reduce_?scatter"),
        ("fused by torch.compile", r"^triton_"),
        ("attention", r"flash|fmha|attention|sdpa"),
        ("optimiser", r"multi_tensor|adam|_foreach"),
        (
            "matrix products",
            r"gemm|gemv|cutlass|xmma|nvjet|cublas|splitk|aten::(add|b|ba)?b?mm\b|aten::(linear|matmul)|convolution|fprop",
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


def group_of(name: str) -> str:
    """The group of a kernel, or of an operator where there are no kernels."""
    lower = name.lower()
    return next((group for group, pattern in _GROUPS if pattern.search(lower)), OTHER)


def breakdown(events: Iterable[Event], steps: int) -> dict[str, Any] | None:
    """What `steps` traced steps spent, by group; None for a trace without operations.

    `events`: the trace's traceEvents; times in microseconds. Where kernels ran on a device only these count, else the host's operators,
    each without the operators that it called. Returns `where` (device or host), `steps`, `span_s` (first start to last end, per step),
    `idle_s` (nothing ran, per step) and `groups`, the largest first: `group`, `seconds` and `calls` per step, `top`, its costliest name.
    Groups that ran beside each other count in full, so that groups and idle time may add up to more than the span.
    """
    if steps < 1:
        raise ValueError(f"{steps} steps were traced")
    spans = [event for event in events if event.get("ph") == "X" and event.get("dur", 0) > 0]
    chosen = [event for event in spans if event.get("cat") in ON_DEVICE]
    where = "device" if chosen else "host"
    if chosen:
        spent = [(str(event["name"]), float(event["dur"])) for event in chosen]
    else:
        chosen = [event for event in spans if event.get("cat") == ON_HOST]
        spent = list(_own_times(chosen))
    if not chosen:
        return None
    seconds: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    by_name: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, micros in spent:
        group = group_of(name)
        seconds[group] += micros / 1e6
        calls[group] += 1
        by_name[group][name] += micros
    begin, end = min(event["ts"] for event in chosen), max(event["ts"] + event["dur"] for event in chosen)
    return {
        "where": where,
        "steps": steps,
        "span_s": (end - begin) / 1e6 / steps,
        "idle_s": (end - begin - _covered(chosen)) / 1e6 / steps,
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
    """(name, microseconds) of each operator without those it called: events of one thread lie within each other or apart."""
    threads: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        threads[event.get("pid"), event.get("tid")].append(event)
    for mine in threads.values():
        open_: list[tuple[float, list[Any]]] = []  # (end, [name, own time])
        for event in sorted(mine, key=lambda event: (event["ts"], -event["dur"])):
            while open_ and open_[-1][0] <= event["ts"]:
                yield tuple(open_.pop()[1])
            if open_:
                open_[-1][1][1] -= event["dur"]
            open_.append((event["ts"] + event["dur"], [str(event["name"]), float(event["dur"])]))
        for _, item in open_:
            yield item[0], item[1]
