"""The host's cores: how busy they are with other work, how fast they run, and what keeps the trial from them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from cluster.sampler import cgroup
from cluster.sampler.trial_processes import TrialProcesses

FREQUENCY_S = 1.0  # between two readings of the cores' clocks: a kernel may ask each core for its own
BUSY = 0.5  # a core counts as busy, and its clock as the trial's, from this share of a second on
_POLICY = Path("/sys/devices/system/cpu/cpufreq/policy0")
_PRESSURE = Path("/proc/pressure/cpu")


class CpuSource:
    """Reads the host. The shares in a reading are over the time since the reading before; the first has none."""

    name = "cpu"

    def __init__(self, processes: TrialProcesses, clock: Callable[[], float] = time.monotonic) -> None:
        self._processes, self._clock = processes, clock
        self._stats = cgroup.quota_stats()
        self._before: tuple[float, Any, float, float | None, dict[Path, tuple[int, int]]] | None = None
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
        now = (self._clock(), psutil.cpu_times(), self._processes.used_s(), _waited_s(), cgroup.periods(self._stats))
        before, self._before = self._before, now
        shares = dict.fromkeys(("steal", "others", "psi_some", "throttled")) if before is None else self._shares(before, now)
        mean, lowest = self._mhz or (None, None)
        return {"mhz": mean, "mhz_min": lowest, "load1": round(os.getloadavg()[0], 2), **shares}

    def _shares(self, before: Any, now: Any) -> dict[str, float | None]:
        seconds = now[0] - before[0]
        spent = {name: getattr(now[1], name) - getattr(before[1], name) for name in now[1]._fields}
        steal = spent.get("steal", 0.0)
        busy = sum(spent.get(name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))
        total = busy + steal + spent["idle"] + spent.get("iowait", 0.0)
        known = total > 0
        waited = None if now[3] is None or before[3] is None or seconds <= 0 else min(1.0, (now[3] - before[3]) / seconds)
        return {
            "steal": round(steal / total, 4) if known else None,
            "others": round((busy - (now[2] - before[2])) / total, 4) if known else None,
            "psi_some": None if waited is None else round(waited, 4),
            "throttled": cgroup.throttled_share(before[4], now[4]),
        }

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
