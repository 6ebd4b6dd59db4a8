"""The parts of a traced step on one device, which add up to it, from a Chrome trace of torch.profiler.

The definitions are those of Holistic Trace Analysis (https://github.com/facebookresearch/HolisticTraceAnalysis; its documentation:
https://hta.readthedocs.io): a device computes, communicates, moves memory or is idle; communication that runs while something computes is
hidden behind it, the rest is exposed; an idle device waits for the host where its next operation had not been launched when the one before
ended. Beyond them, computation is split by kind of kernel, and a wait for the host that was in the loader meanwhile is one for data.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from typing import Any

from cluster.worker.measure.trace_breakdown import ATTENTION, COMMUNICATION, ON_DEVICE, PRODUCTS, Event, group_of

LOADER = "sweepbench: in the loader"  # what the host's time in the loader is called in a trace
OPERATOR = "External id"  # of an operator, and of what it launched
_LAUNCH = frozenset({"cuda_runtime", "cuda_driver"})
# What torch's allocator asks of CUDA where the memory that it keeps does not do; cudaFree also waits until the device has done all its work
_ALLOCATION = re.compile(r"cuda(Malloc|Free)(?!Host)\w*")

Interval = tuple[float, float]  # start, end; microseconds


@dataclass(frozen=True)
class StepParts:
    """The mean of `steps` traced steps of one device, s. All parts from `matrix_s` to `idle_s` add up to `step_s`.

    An instant counts to the first of them that holds: a matrix product runs; attention; another kernel; communication (exposed, since
    nothing computes); a copy; and of an idle device the wait for data, then for a launch while the host was in CUDA's own allocation of
    memory (allocator_s), then for any other launch, then the rest (gaps between kernels that were launched in time, waits of one stream
    for another).
    hidden_s: communication while something computes; it is no part. samples: of a step.
    """

    steps: int
    step_s: float
    matrix_s: float
    attention_s: float
    other_s: float
    communication_s: float
    copies_s: float
    data_wait_s: float
    allocator_s: float
    launch_s: float
    idle_s: float
    hidden_s: float
    samples: float

    def record(self) -> dict[str, float]:
        """For the journal."""
        return asdict(self)


@dataclass(frozen=True)
class Operation:
    """A kernel, copy or fill on the device. `launched`: when the host asked for it; its start where that is not known. Microseconds.

    `operator`: the innermost operator of the host that asked for it, as its `External id` in the trace; None where that is not known.
    """

    start: float
    end: float
    launched: float
    kind: str
    operator: Any = None


@dataclass(frozen=True)
class CountedSteps:
    """The traced steps that count, from `begin` to `end` (microseconds).

    `operations`: of all traced steps, in order of start. `loading`, `allocating`: when the host was in the loader, and in CUDA's own
    allocation of memory. `samples`: of each step that counts.
    """

    operations: Sequence[Operation]
    loading: Sequence[Interval]
    allocating: Sequence[Interval]
    begin: float
    end: float
    samples: Sequence[int]


def counted_steps(events: Sequence[Event], samples: Sequence[int]) -> CountedSteps | None:
    """The steps of a trace that count; None for a trace without kernels, as on a CPU.

    `events`: the trace's traceEvents, of a device that was idle when the first step began. `samples`: of each step. A step ends when the
    last operation that was launched in it does. The first of several is left out: in it the profiler warms up and the device's queue is
    empty. Raises ValueError for a trace that has not as many steps, marked by LOADER, as there are `samples`.
    """
    operations = device_operations(events)
    if not operations:
        return None
    loading = sorted(_interval(event) for event in events if event.get("name") == LOADER and event.get("cat") == "user_annotation")
    if len(loading) != len(samples) or not samples:
        raise ValueError(f"{len(samples)} steps were traced, and the trace has {len(loading)}")
    end = max(operation.end for operation in operations)
    begin, counted = loading[0][0], samples
    if len(samples) > 1:
        first = [operation.end for operation in operations if operation.launched < loading[1][0]]
        begin, counted = max(first, default=loading[1][0]), samples[1:]
    if not begin < end:  # what the first step launched ran longest
        return None
    return CountedSteps(operations, loading, allocations(events), begin, end, counted)


def step_parts(counted: CountedSteps) -> StepParts:
    """The parts of the steps."""
    steps, begin, end = len(counted.samples), counted.begin, counted.end
    spent = time_by_kind(kinds_of(counted.operations, counted.loading, counted.allocating), begin, end)
    communication = time_by_kind([(COMMUNICATION, _of_kind(counted.operations, COMMUNICATION))], begin, end)[COMMUNICATION]

    def seconds(micros: float) -> float:
        return micros / 1e6 / steps

    return StepParts(
        steps=steps,
        step_s=seconds(end - begin),
        matrix_s=seconds(spent[PRODUCTS]),
        attention_s=seconds(spent[ATTENTION]),
        other_s=seconds(spent["other"]),
        communication_s=seconds(spent[COMMUNICATION]),
        copies_s=seconds(spent["copy"]),
        data_wait_s=seconds(spent["data wait"]),
        allocator_s=seconds(spent["allocator"]),
        launch_s=seconds(spent["launch"]),
        idle_s=seconds(spent[""]),
        hidden_s=seconds(communication - spent[COMMUNICATION]),
        samples=sum(counted.samples) / steps,
    )


def device_operations(events: Iterable[Event]) -> list[Operation]:
    """What ran on the device, in order of start. An operation and its launch have the same `correlation`."""
    spans = [event for event in events if event.get("ph") == "X"]
    launches = {event["args"]["correlation"]: event["ts"] for event in spans if event.get("cat") in _LAUNCH and _correlation(event)}
    found = []
    for event in spans:
        if event.get("cat") not in ON_DEVICE or not event.get("dur", 0) > 0:
            continue
        start, end = _interval(event)
        found.append(
            Operation(start, end, float(launches.get(_correlation(event), start)), _kind(event), event.get("args", {}).get(OPERATOR))
        )
    return sorted(found, key=lambda operation: (operation.start, operation.end))


def allocations(events: Iterable[Event]) -> list[Interval]:
    """When the host was in a call by which memory comes from CUDA or goes back to it, in order of start."""
    calls = (event for event in events if event.get("cat") in _LAUNCH and event.get("ph") == "X")
    return sorted(_interval(event) for event in calls if _ALLOCATION.fullmatch(str(event["name"])))


def kinds_of(
    operations: Sequence[Operation], loading: Sequence[Interval], allocating: Sequence[Interval]
) -> list[tuple[str, Sequence[Interval]]]:
    """The intervals of each kind of time, in the order in which they take an instant. `loading`, `allocating`: as in CountedSteps.

    A gap before an operation that had been launched is no wait for data, wherever the host is by then: it has run ahead.
    """
    of_operations = [(kind, _of_kind(operations, kind)) for kind in (PRODUCTS, ATTENTION, "other", COMMUNICATION, "copy")]
    waits = list(_waits_for_launch(operations, idle_from=loading[0][0]))
    return [*of_operations, ("data wait", _within(waits, loading)), ("allocator", _within(waits, allocating)), ("launch", waits)]


def time_by_kind(kinds: Sequence[tuple[str, Sequence[Interval]]], begin: float, end: float) -> defaultdict[str, float]:
    """The time from `begin` to `end` by kind, each instant counted once: to the first kind that has an interval there, else to ``.

    The union of all intervals, cut where any begins or ends; so the values add up to end - begin.
    """
    changes = []
    for order, (_, intervals) in enumerate(kinds):
        for start, stop in intervals:
            if min(stop, end) > max(start, begin):
                changes += [(max(start, begin), order, 1), (min(stop, end), order, -1)]
    spent: defaultdict[str, float] = defaultdict(float)
    open_ = [0] * len(kinds)
    for (at, order, change), (until, *_) in pairwise([(begin, 0, 0), *sorted(changes), (end, 0, 0)]):
        open_[order] += change
        if until > at:
            spent[next((name for (name, _), count in zip(kinds, open_, strict=True) if count), "")] += until - at
    return spent


def _waits_for_launch(operations: Iterable[Operation], *, idle_from: float) -> Iterator[Interval]:
    """When the device was idle and the operation that it ran next had not been launched as the one before ended, or at `idle_from`."""
    until = idle_from
    for operation in operations:
        if operation.launched > until:
            yield until, operation.start
        until = max(until, operation.end)


def _within(waits: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """The parts of the waits, which are disjoint and in order, that lie in one of the others."""
    found = []
    for start, end in others:
        first = bisect_right(waits, start, key=lambda wait: wait[1])
        for wait in islice(waits, first, None):
            if wait[0] >= end:
                break
            found.append((max(start, wait[0]), min(end, wait[1])))
    return found


def _kind(event: Event) -> str:
    if event["cat"] != "kernel":
        return "copy"
    group = group_of(str(event["name"]))
    return group if group in (PRODUCTS, ATTENTION, COMMUNICATION) else "other"


def _of_kind(operations: Iterable[Operation], kind: str) -> list[Interval]:
    return [(operation.start, operation.end) for operation in operations if operation.kind == kind]


def _interval(event: Event) -> Interval:
    return float(event["ts"]), float(event["ts"]) + float(event["dur"])


def _correlation(event: Event) -> Any:
    return event.get("args", {}).get("correlation")
