"""The parts of a traced step on one device, which add up to it, from a Chrome trace of torch.profiler.

The definitions are those of Holistic Trace Analysis (https://github.com/facebookresearch/HolisticTraceAnalysis; its documentation:
https://hta.readthedocs.io): a device computes, communicates, moves memory or is idle; communication that runs while something computes is
hidden behind it, the rest is exposed; an idle device waits for the host where its next operation had not been launched when the one before
ended. Beyond them, computation is split by kind of kernel, and idle time in which the host was in the loader is a wait for data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from cluster.worker.measure.trace_breakdown import ATTENTION, COMMUNICATION, ON_DEVICE, PRODUCTS, Event, group_of

LOADER = "sweepbench: in the loader"  # what the host's time in the loader is called in a trace
OPERATOR = "External id"  # of an operator, and of what it launched
_LAUNCH = frozenset({"cuda_runtime", "cuda_driver"})

Interval = tuple[float, float]  # start, end; microseconds


@dataclass(frozen=True)
class StepParts:
    """The mean of `steps` traced steps of one device, s. All parts from `matrix_s` to `idle_s` add up to `step_s`.

    An instant counts to the first of them that holds: a matrix product runs; attention; another kernel; communication (exposed, since
    nothing computes); a copy; and of an idle device the wait for data, then for a launch, then the rest (gaps between kernels that were
    launched in time, waits of one stream for another).
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

    `operations`: of all traced steps, in order of start. `loading`: when the host was in the loader. `samples`: of each step that counts.
    """

    operations: Sequence[Operation]
    loading: Sequence[Interval]
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
    return CountedSteps(operations, loading, begin, end, counted)


def step_parts(counted: CountedSteps) -> StepParts:
    """The parts of the steps."""
    steps, begin, end = len(counted.samples), counted.begin, counted.end
    spent = time_by_kind(kinds_of(counted.operations, counted.loading), begin, end)
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


def kinds_of(operations: Sequence[Operation], loading: Sequence[Interval]) -> list[tuple[str, Sequence[Interval]]]:
    """The intervals of each kind of time, in the order in which they take an instant. `loading`: when the host was in the loader."""
    of_operations = [(kind, _of_kind(operations, kind)) for kind in (PRODUCTS, ATTENTION, "other", COMMUNICATION, "copy")]
    return [*of_operations, ("data wait", loading), ("launch", list(_waits_for_launch(operations)))]


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


def _waits_for_launch(operations: Iterable[Operation]) -> Iterator[Interval]:
    """When the device was idle and the operation that it ran next had not been launched as the one before ended."""
    until: float | None = None
    for operation in operations:
        if until is not None and operation.launched > until:
            yield until, operation.start
        until = operation.end if until is None else max(until, operation.end)


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
