"""The host's cores: how busy they are with other work, how fast they run, and what keeps the trial from them.

Shares of cores' time are of the cores that the trial may use. Of a trial that is held to some of many (`cores_per_device`, a container's
cpuset) other work may take all while it is a small share of the host's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from cluster.sampler import cgroup
from cluster.sampler.trial_processes import TrialProcesses

FREQUENCY_S = 1.0  # between two readings of the cores' clocks: a kernel may ask each core for its own
AFFINITY_S = 1.0  # between two looks at the cores that the trial may use: it may have hundreds of threads
BUSY = 0.5  # a core counts as busy, and its clock as the trial's, from this share of a second on
_POLICY = Path("/sys/devices/system/cpu/cpufreq/policy0")
_PRESSURE = Path("/proc/pressure/cpu")
_ONLINE = Path("/sys/devices/system/cpu/online")
_TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # that make up a core's time; a guest's is in user
Cores = frozenset[int] | None  # None: all of the host's


class CpuSource:
    """Reads the host. The shares in a reading are over the time since the reading before; the first has none."""

    name = "cpu"

    def __init__(self, processes: TrialProcesses, clock: Callable[[], float] = time.monotonic) -> None:
        self._processes, self._clock = processes, clock
        self._stats = cgroup.quota_stats()
        self._before: tuple[float, dict[str, float], float, float | None, dict[Path, tuple[int, int]]] | None = None
        self._cores: Cores = None  # that `_before` is of
        self._looked_at = clock()
        self._cores_found: Cores = None
        self._cores_at, self._cores_before = clock(), self._core_times()
        self._mhz: tuple[float, float] | None = None

    def missing(self) -> dict[str, str]:
        """What this machine does not tell, and why."""
        found = {}
        if not _POLICY.exists():
            found["cpu frequency"] = "the kernel shows no cpufreq"
        if _waited_s() is None:
            found["psi"] = f"{_PRESSURE} cannot be read"
        if not sum(psutil.cpu_times()[:4]):
            found["cpu time"] = "the kernel counts none"
        return found

    def read(self) -> dict[str, Any]:
        """The fields of `cpu` in a state record; null where unknown."""
        self._read_clocks()
        used_s = self._processes.used_s()  # looks for new processes
        cores = self._cores_now()
        now = (self._clock(), _core_times_of(cores), used_s, _waited_s(), cgroup.periods(self._stats))
        before = self._before if cores == self._cores else None  # the trial was held to its cores just now
        self._before, self._cores = now, cores
        shares = dict.fromkeys(("steal", "others", "psi_some", "throttled")) if before is None else self._shares(before, now)
        mean, lowest = self._mhz or (None, None)
        held = {} if cores is None else {"cores": len(cores)}
        return {"mhz": mean, "mhz_min": lowest, "load1": round(os.getloadavg()[0], 2), **held, **shares}

    def _shares(self, before: Any, now: Any) -> dict[str, float | None]:
        seconds = now[0] - before[0]
        spent = {name: now[1][name] - before[1][name] for name in _TIMES}
        steal = spent["steal"]
        busy = sum(spent[name] for name in ("user", "nice", "system", "irq", "softirq"))
        total = busy + steal + spent["idle"] + spent["iowait"]
        known = total > 0
        waited = None if now[3] is None or before[3] is None or seconds <= 0 else min(1.0, (now[3] - before[3]) / seconds)
        return {
            "steal": round(steal / total, 4) if known else None,
            "others": round((busy - (now[2] - before[2])) / total, 4) if known else None,
            "psi_some": None if waited is None else round(waited, 4),
            "throttled": cgroup.throttled_share(before[4], now[4]),
        }

    def _cores_now(self) -> Cores:
        """The trial's cores, looked up once a second: it is held to them before it builds its model."""
        if self._before is None or self._clock() - self._looked_at >= AFFINITY_S:
            self._looked_at, self._cores_found = self._clock(), _held(self._processes.pids)
        return self._cores_found

    def _read_clocks(self) -> None:
        """Mean and lowest clock (MHz) of the cores that were busy in the last second. The mean weights a core by how busy it was."""
        if not _POLICY.exists() or self._clock() - self._cores_at < FREQUENCY_S:
            return
        cores = self._core_times()
        busy = [_busy_share(before, now) for before, now in zip(self._cores_before, cores, strict=False)]
        self._cores_at, self._cores_before = self._clock(), cores
        clocks = [one.current for one in psutil.cpu_freq(percpu=True)]
        known = [(mhz, share) for mhz, share in zip(clocks, busy, strict=False) if share >= BUSY and mhz]
        if len(clocks) != len(cores) or not known:
            self._mhz = None
            return
        total = sum(share for _, share in known)
        self._mhz = round(sum(mhz * share for mhz, share in known) / total, 1), round(min(mhz for mhz, _ in known), 1)

    def _core_times(self) -> list[Any]:
        return list(psutil.cpu_times(percpu=True)) if _POLICY.exists() else []

    def close(self) -> None:
        """Nothing is open."""


def _held(pids: Iterable[int]) -> Cores:
    """The cores that the trial's processes are held to: those of all that have fewer than this process, which was started before they were
    held; where none has, this process's own. The others only wait, as the one that started the ranks does."""
    available = _allowed(os.getpid())
    held = [cores for pid in pids if (cores := _allowed(pid)) and cores < available]
    cores = frozenset[int]().union(*held) or available
    count = psutil.cpu_count() or 0
    return cores if cores < frozenset(range(count)) and _online() == f"0-{count - 1}" else None


def _allowed(pid: int) -> frozenset[int]:
    """Of all its threads: OpenMP may hold each to a core of its own. Empty once it has ended."""
    cores = frozenset[int]()
    with suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - ten times as fast as pathlib
        for thread in threads:
            with suppress(OSError):  # it alone has ended since
                cores |= os.sched_getaffinity(int(thread))
    return cores


def _online() -> str:
    """The numbers of the cores that are on. psutil tells times in their order, and so by number only where none is off."""
    try:
        return _ONLINE.read_text().strip()
    except OSError:
        return ""


def _core_times_of(cores: Cores) -> dict[str, float]:
    """Seconds since the start of the machine, summed over these cores."""
    each = [psutil.cpu_times()] if cores is None else [one for core, one in enumerate(psutil.cpu_times(percpu=True)) if core in cores]
    return {name: sum(getattr(one, name, 0.0) for one in each) for name in _TIMES}


def _busy_share(before: Any, now: Any) -> float:
    """Share of a core's time in which it was not idle."""
    idle = now.idle - before.idle + getattr(now, "iowait", 0.0) - getattr(before, "iowait", 0.0)
    total = sum(getattr(now, name) - getattr(before, name) for name in now._fields if not name.startswith("guest"))
    return 1 - idle / total if total > 0 else 0.0


def _waited_s() -> float | None:
    """Seconds since the start of the machine in which some process waited for a core; None without PSI.

    The line `some avg10=... total=<microseconds>`: https://docs.kernel.org/accounting/psi.html.
    """
    try:
        return int(_PRESSURE.read_text().split("total=", 1)[1].split(None, 1)[0]) / 1e6
    except (OSError, ValueError, IndexError):
        return None
