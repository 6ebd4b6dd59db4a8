"""The state of a trial's device and host while it measured: clocks, what capped them, and what other work disturbed it.

Pure arithmetic over the records that a sampler writes beside a trial (cluster/sampler), one JSON object each:

- `sampler`, first of an attempt: `attempt`, `device` (kind), `hz`, `cores` (of the host), `user` (who runs the trial), `emulated`,
  `locked_clocks_mhz` (null: not locked), `sources` (name -> null, or why it is not available).
- `state`: `t` (Unix time, s), `devices`, `cpu` and `busiest`; each is absent where its source failed.
  - devices: a list of {index, uuid, sm_mhz, memory_mhz, power_w, temperature_c, capped_by: [word], others: [{pid, user, memory_bytes}]},
    read at `t`; null where unknown. `others` are processes on the device that are not the trial's.
  - cpu: {mhz, mhz_min, load1} at `t`, and {steal, others, psi_some, throttled}, shares of the time since the sample before: `steal`
    and `others` of the time of as many `cores` as the trial is held to, without that field of all, `psi_some` and `throttled` of the
    clock's. A process's time may become known only after it was spent (a child's, when it ends), so `others` of one sample may be off
    in either direction, also below 0; sums over samples are not.
  - busiest: {seconds, processes: [{pid, name, cpu_s, sweep}]}, every half second or less often: which processes that are not the
    trial's used most CPU time in so many seconds before `t`, and whether they are of its own sweep. How much all used is `others`.

The sampler runs on the node of rank 0. What happens on a trial's other nodes is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

Record = Mapping[str, Any]

# What is in force without slowing the device against its own settings: not a cap
NOT_CAPS = frozenset({"idle", "applications clocks setting", "display clock setting"})
POWER, THERMAL, HARDWARE, BRAKE, SYNC_BOOST = "power", "thermal", "hardware slowdown", "power brake", "sync boost"
CPU_QUOTA = "cpu quota"
# Caps that come and go with the room, the neighbours or a defect, so that the same trial would be faster at another time. Power is none of
# them: at its power limit a device is in the state that the workload itself puts it into. Nor is a CPU quota, which stays as it is set.
DISTURBING_CAPS = {THERMAL: "thermal slowdown", HARDWARE: "hardware slowdown", BRAKE: "power brake slowdown"}

SLOWDOWN_LIMIT = 0.01  # of the samples: more than a single one in the ten seconds that a window should have
MAX_GAP_S = 0.5  # a reading stands for the time since the one before, up to this: five samples at 10 Hz; the rest counts as not covered
JUDGED_FROM_S = 1.0  # CPU time is counted in ticks of 10 ms for each core and process: over less than this the error may exceed a limit
# What a reading of power is the mean of: on most GPUs since Ampere the second before it (NVML, nvmlDeviceGetPowerUsage)
POWER_MEAN_S = 1.0
NAMED = 3  # processes that a disturbed trial's note names
COVERED_FROM = 0.9  # part of the window that readings must cover: what the sampler missed may hide other work

# Why a trial could not be judged: nothing is known of other work on its device or host
NOT_SAMPLED = "nothing was sampled"
SHORT_WINDOW = f"the window was under {JUDGED_FROM_S:g} s"
NOT_COVERED = f"the sampler covered less than {100 * COVERED_FROM:g} % of the window"
# So that readings of two times are at the same `t`, and the window's end is not where it was
SET_BACK = "the host's clock was set back in the window"
NO_CPU_TIME = f"the CPU time of other processes was known for less than {JUDGED_FROM_S:g} s"


@dataclass(frozen=True)
class HostLimits:
    """Largest shares of its cores' time that leave a trial undisturbed: used by other processes, taken by the hypervisor. Its cores are all
    of the host's, or those that it is held to."""

    others: float
    steal: float


# Disturbed is more than 5 % of its cores' time, or 0.2 cores (FLOW_CORES) where that is more: 10 % on two cores, which is more than the
# smallest effect that verdicts claim. `cores` is the host's number, not the cgroup's. On a CPU the cores are the device: other work takes
# them, their caches and their memory bandwidth. 5 % is what a desktop's or a node's own services use. The hypervisor's share is lost.
CPU_LIMITS = HostLimits(others=0.05, steal=0.01)
# Beside an accelerator the cores only submit work and load data. While half of them are free, a thread that is woken finds one at once;
# where that is not enough, data_wait shows it.
ACCELERATOR_LIMITS = HostLimits(others=0.5, steal=0.1)
# Cores that a trial's own flow may use on the same machine: following a trial takes it 0.12 to 0.14 of a core, the Prefect server 0.015
# (two cores of an Intel Xeon, 2026-11-22). That is more than 5 % of a machine of few cores, and every trial of a sweep has it alike.
FLOW_CORES = 0.2


@dataclass(frozen=True)
class DeviceState:
    """A trial's device and host over its measured window. With several devices the worst counts. None where unknown.

    samples: state records that stand for a part of the window. coverage: part of the window that they stand for, 0 to 1. gaps: intervals
    of more than MAX_GAP_S between two of them.
    clock_mean_mhz, clock_min_mhz: SM clock on CUDA, SoC clock on Gaudi; on a CPU the clock of its busy cores. memory_clock_mhz: mean.
    power_w: mean draw, of readings that hold nothing of before or after the window: None where that is under POWER_MEAN_S.
    temperature_c: highest. All means are over time, of the device with the lowest clock, or the highest draw.
    caps: what capped the clock, with its share of the time, of several devices the largest; the most frequent first. capped_share: share
    with any of them.
    cpu_others_share, steal_share: shares of the time of all cores, or those that the trial is held to, that processes other than its own
    used, and that the hypervisor took.
    psi_cpu_share: share of the time in which some process waited for a core (Linux PSI). throttled_share: share of the periods in which
    the cgroup's CPU quota was used up.
    other_processes: most processes at once on one device that are not the trial's.
    neighbour_gpus: most at once of the other GPUs that the host shows, on which a process had a context. They may share cores, memory and
    links with the trial, but not its GPU.
    disturbed: why the figures of this trial are not those of the device alone; a sentence fragment. None: undisturbed, or unknown.
    not_judged: why it could not be judged by all that disturbs a trial; None: it was. What disturbed it is told in either case.
    """

    samples: int = 0
    coverage: float = 0.0
    gaps: int = 0
    clock_mean_mhz: float | None = None
    clock_min_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    caps: tuple[tuple[str, float], ...] = ()
    capped_share: float | None = None
    cpu_others_share: float | None = None
    steal_share: float | None = None
    psi_cpu_share: float | None = None
    throttled_share: float | None = None
    other_processes: int | None = None
    neighbour_gpus: int | None = None
    disturbed: str | None = None
    not_judged: str | None = None

    @property
    def capped_by(self) -> tuple[str, ...]:
        """The words of what capped the clock, the most frequent first."""
        return tuple(word for word, _ in self.caps)

    def metrics(self) -> dict[str, float | int | None]:
        """The summary metrics of a trial that the state gives, by their names in experiments/metrics.py."""
        return {
            "clock_mean_mhz": self.clock_mean_mhz,
            "clock_min_mhz": self.clock_min_mhz,
            "memory_clock_mhz": self.memory_clock_mhz,
            "sampled_power_w": self.power_w,
            "temperature_max_c": self.temperature_c,
            "capped_share": self.capped_share,
            "cpu_others_share": self.cpu_others_share,
            "steal_share": self.steal_share,
            "psi_cpu_share": self.psi_cpu_share,
            "throttled_share": self.throttled_share,
            "other_processes": self.other_processes,
            "neighbour_gpus": self.neighbour_gpus,
            "state_coverage": self.coverage,
        }


NAMES = tuple(DeviceState().metrics())


def measured_window(steps: Sequence[Record]) -> tuple[float, float] | None:
    """Begin and end (Unix time, s) of the measured steps: from the start of the first one to the end of the last; None without any."""
    measured = [step for step in steps if step["measured"]]
    return (measured[0]["t"] - measured[0]["total_s"], measured[-1]["t"]) if measured else None


def host_limits(kind: str, cores: int | None) -> HostLimits:
    """The limits beside a device of that kind, of a trial with so many cores (None: unknown, taken to be many)."""
    limits = CPU_LIMITS if kind == "cpu" else ACCELERATOR_LIMITS
    return replace(limits, others=max(limits.others, FLOW_CORES / cores)) if cores else limits


def summarise_state(records: Iterable[Record], begin: float, end: float) -> DeviceState:
    """The state between `begin` and `end` (Unix time, s) from one attempt's records, in order of time.

    Each record stands for the time since the record before: with its shares for all of it, with its readings for at most MAX_GAP_S.
    A mean weights records by that time. Raises ValueError unless begin < end.
    """
    if not begin < end:
        raise ValueError(f"the window must begin before it ends: {begin} to {end}")
    records = list(records)
    header: Record = next((record for record in records if record["kind"] == "sampler"), {})
    kind = str(header.get("device") or "cpu")
    states = [record for record in records if record["kind"] == "state"]
    spans = _spans(states, 1 / header.get("hz", 10.0), begin, end)
    if not spans:
        return DeviceState(not_judged=NOT_COVERED)
    coverage = min(1.0, math.fsum(span.read_s for span in spans) / (end - begin))
    host, devices = _host(spans), _devices(spans, begin, end)
    limits = host_limits(kind, _held_cores(spans) or header.get("cores"))
    if kind == "cpu":
        devices = _cores(spans, host["throttled_share"])
    return DeviceState(
        samples=len(spans),
        coverage=coverage,
        gaps=sum(span.gap for span in spans),
        **host,
        **devices,
        disturbed=_disturbed(limits, host, devices, spans, _busiest(states, begin, end)),
        not_judged=_not_judged(end - begin, coverage, spans, set_back=_set_back(states, begin, end)),
    )


@dataclass(frozen=True)
class _Span:
    """A record and the seconds of the window that it stands for: `read_s` with its readings, `since_s` with its shares."""

    record: Record
    read_s: float
    since_s: float
    gap: bool


def _spans(states: Sequence[Record], period: float, begin: float, end: float) -> list[_Span]:
    """The records that stand for a part of the window. The first record stands for one period, and has no shares."""
    spans, previous = [], None
    for record in states:
        t = record["t"]
        since = t - period if previous is None else previous
        previous = t
        since_s = min(t, end) - max(since, begin)
        if since_s <= 0:  # before or after the window; or the clock was set back
            continue
        read_s = max(0.0, min(t, end) - max(since, t - MAX_GAP_S, begin))
        spans.append(_Span(record, read_s, since_s, t - since > MAX_GAP_S))
    return spans


def _mean(pairs: Iterable[tuple[float | None, float]]) -> float | None:
    """The mean of (value, weight) pairs; None where no value is known or has a weight."""
    known = [(value, weight) for value, weight in pairs if value is not None and weight > 0]
    total = math.fsum(weight for _, weight in known)
    return math.fsum(value * weight for value, weight in known) / total if total else None


def _host(spans: Sequence[_Span]) -> dict[str, Any]:
    def share(name: str) -> float | None:
        mean = _mean((span.record.get("cpu", {}).get(name), span.since_s) for span in spans)
        return None if mean is None else min(1.0, max(0.0, mean))

    names = {"cpu_others_share": "others", "steal_share": "steal", "psi_cpu_share": "psi_some", "throttled_share": "throttled"}
    return {name: share(field) for name, field in names.items()}


def _cores(spans: Sequence[_Span], throttled: float | None) -> dict[str, Any]:
    """What DeviceState says of the device, where that is the CPU."""
    lowest = [value for span in spans if span.read_s > 0 and (value := span.record.get("cpu", {}).get("mhz_min")) is not None]
    return {
        "clock_mean_mhz": _mean((span.record.get("cpu", {}).get("mhz"), span.read_s) for span in spans),
        "clock_min_mhz": min(lowest, default=None),
        "caps": ((CPU_QUOTA, throttled),) if throttled else (),
        "capped_share": throttled,
    }


def _devices(spans: Sequence[_Span], begin: float, end: float) -> dict[str, Any]:
    """What DeviceState says of accelerators: each alone, then the worst."""
    by_index: dict[int, list[tuple[Record, float]]] = {}
    for span in spans:
        power_is_its = begin + POWER_MEAN_S <= span.record["t"] <= end
        for device in span.record.get("devices", ()):
            if span.read_s > 0:
                reading = device if power_is_its else {**device, "power_w": None}
                by_index.setdefault(device["index"], []).append((reading, span.read_s))
    each = [_one_device(readings) for readings in by_index.values()]

    def worst(name: str, pick: Callable[[list[Any]], Any]) -> Any:
        known = [one[name] for one in each if one[name] is not None]
        return pick(known) if known else None

    return {
        **{name: worst(name, min) for name in ("clock_mean_mhz", "clock_min_mhz", "memory_clock_mhz")},
        **{name: worst(name, max) for name in ("power_w", "temperature_c", "capped_share", "other_processes", "neighbour_gpus")},
        "caps": _by_share((word, share) for one in each for word, share in one["caps"]),
    }


def _by_share(caps: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Each word once, with its largest share, the most frequent first: what caps one device alone must not hide behind another's."""
    shares: dict[str, float] = {}
    for word, share in caps:
        shares[word] = max(share, shares.get(word, 0.0))
    return tuple(sorted(shares.items(), key=lambda cap: -cap[1]))


def _one_device(readings: Sequence[tuple[Record, float]]) -> dict[str, Any]:
    def values(name: str) -> list[float]:
        return [value for reading, _ in readings if (value := reading.get(name)) is not None]

    def mean(name: str) -> float | None:
        return _mean((reading.get(name), seconds) for reading, seconds in readings)

    known = [(set(reading["capped_by"]) - NOT_CAPS, seconds) for reading, seconds in readings if reading.get("capped_by") is not None]
    words = sorted({word for caps, _ in known for word in caps})
    shares = ((word, _mean((float(word in caps), seconds) for caps, seconds in known) or 0.0) for word in words)
    others = [reading["others"] for reading, _ in readings if reading.get("others") is not None]
    return {
        "clock_mean_mhz": mean("sm_mhz"),
        "clock_min_mhz": min(values("sm_mhz"), default=None),
        "memory_clock_mhz": mean("memory_mhz"),
        "power_w": mean("power_w"),
        "temperature_c": max(values("temperature_c"), default=None),
        "caps": _by_share(shares),
        "capped_share": _mean((float(bool(caps)), seconds) for caps, seconds in known),
        "other_processes": max(map(len, others), default=None),
        "neighbour_gpus": max((int(value) for value in values("neighbours")), default=None),
    }


def _disturbed(limits: HostLimits, host: Mapping[str, Any], devices: Mapping[str, Any], spans: Sequence[_Span], busiest: str) -> str | None:
    """Every reason with its figure, the surest first, joined by `; `. `busiest`: who used the cores."""
    reasons = [_other_process(spans)] if devices.get("other_processes") else []
    reasons += [
        f"{DISTURBING_CAPS[word]} in {_percent(share)} of the samples (limit {_percent(SLOWDOWN_LIMIT)})"
        for word, share in devices["caps"]
        if word in DISTURBING_CAPS and share > SLOWDOWN_LIMIT
    ]
    if _counted_s(spans) >= JUDGED_FROM_S:
        others, steal = host["cpu_others_share"], host["steal_share"]
        if others is not None and others > limits.others:
            cores = "the CPU" if (held := _held_cores(spans)) is None else f"the trial's {held} CPU cores"
            reasons.append(f"other processes used {_percent(others)} of {cores} (limit {_percent(limits.others)}){busiest}")
        if steal is not None and steal > limits.steal:
            reasons.append(f"the hypervisor took {_percent(steal)} of CPU time (limit {_percent(limits.steal)})")
    return "; ".join(reasons) or None


def _held_cores(spans: Sequence[_Span]) -> int | None:
    """How many cores the trial was held to; None: none, or where that is not known."""
    return min((cores for span in spans if (cores := span.record.get("cpu", {}).get("cores"))), default=None)


def _busiest(states: Sequence[Record], begin: float, end: float) -> str:
    """The processes that used most CPU time between `begin` and `end`, as `: stress pid 7 1.9 s, ...`; empty where none is known.

    A look's time counts by the part of its seconds that lies within.
    """
    used: dict[tuple[int, str], float] = {}
    for record in states:
        look = record.get("busiest") or {}
        seconds = look.get("seconds") or 0.0
        within_s = min(record["t"], end) - max(record["t"] - seconds, begin)
        if seconds <= 0 or within_s <= 0:
            continue
        for process in look["processes"]:
            key = process["pid"], process["name"] + (" (of this sweep)" if process["sweep"] else "")
            used[key] = used.get(key, 0.0) + process["cpu_s"] * within_s / seconds
    first = sorted(used.items(), key=lambda one: (-one[1], one[0]))[:NAMED]
    return f": {', '.join(f'{name} pid {pid} {cpu_s:.2g} s' for (pid, name), cpu_s in first)}" if first else ""


def _counted_s(spans: Sequence[_Span]) -> float:
    """Seconds of the window in which the CPU time of other processes is known."""
    return math.fsum(span.since_s for span in spans if span.record.get("cpu", {}).get("others") is not None)


def _set_back(states: Sequence[Record], begin: float, end: float) -> bool:
    return any(after["t"] < before["t"] and after["t"] <= end and before["t"] >= begin for before, after in pairwise(states))


def _not_judged(window_s: float, coverage: float, spans: Sequence[_Span], *, set_back: bool) -> str | None:
    if set_back:
        return SET_BACK
    if window_s < JUDGED_FROM_S:
        return SHORT_WINDOW
    if coverage < COVERED_FROM:
        return NOT_COVERED
    return NO_CPU_TIME if _counted_s(spans) < JUDGED_FROM_S else None


def _other_process(spans: Sequence[_Span]) -> str:
    """The processes of others in the first sample with the most of them on one device."""
    found = (device["others"] for span in spans if span.read_s > 0 for device in span.record.get("devices", ()) if device.get("others"))
    processes = max(found, key=len)
    first = processes[0]
    user = f", user {first['user']}" if first.get("user") else ""
    if len(processes) == 1:
        return f"another process (pid {first['pid']}{user}) was on the device"
    return f"{len(processes)} other processes (one: pid {first['pid']}{user}) were on the device"


def _percent(share: float) -> str:
    """A share in three digits: 0.381 as `38.1 %`."""
    return f"{100 * share:.3g} %"
