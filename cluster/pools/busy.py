"""What other work the machine of an embedded pool does right now: a sweep that starts on a busy machine measures that work too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil

from cluster.pools.pool import Pool
from cluster.visible_gpus import handle_of, visible
from experiments.device_state import host_limits

LOOK_S = 0.5
_NAMED = 3  # busiest processes that are named


def other_work(pool: Pool, since: Look | None = None, sleep: Callable[[float], None] = time.sleep) -> str | None:
    """Other work that would disturb trials on the pool, as a sentence fragment; None if there is none, or the pool is a cluster.

    Looks at the cores for at least LOOK_S seconds from `since` on, else from now, and at who computes on the GPUs. What this process itself
    does is no other work. The limits are those of a disturbed trial.
    """
    if not pool.embedded:
        return None
    found = [_on_gpus()] if pool.device == "cuda" else []
    limit = host_limits(pool.device, psutil.cpu_count()).others
    rest_s = LOOK_S if since is None else LOOK_S - (time.monotonic() - since.at)
    share, names = _cpu_use(since or Look(), lambda: sleep(max(0.0, rest_s)))
    if share > limit:
        busiest = f" ({', '.join(names)})" if names else ""
        found.append(
            f"other processes use {100 * share:.3g} % of the CPU{busiest}, and from {100 * limit:g} % on a trial counts as disturbed"
        )
    return "; ".join(filter(None, found)) or None


def _cpu_use(before: Look, wait: Callable[[], None]) -> tuple[float, list[str]]:
    """The share of all cores' time that is in use, 0 to 1, and the busiest processes other than this one, as `name pid 7`."""
    own = os.getpid()
    wait()
    after, total = _times(), psutil.cpu_times()
    spent = {name: getattr(total, name) - getattr(before.total, name) for name in total._fields if not name.startswith("guest")}
    seconds = sum(spent.values())
    if seconds <= 0:
        return 0.0, []
    used = {key: value - before.processes.get(key, value) for key, value in after.items()}
    mine = sum(value for (pid, _), value in used.items() if pid == own)
    idle = spent.get("idle", 0.0) + spent.get("iowait", 0.0)
    busiest = sorted((one for one in used.items() if one[1] > 0 and one[0][0] != own), key=lambda one: -one[1])[:_NAMED]
    return max(0.0, (seconds - idle - mine) / seconds), [f"{name} pid {pid}" for (pid, name), _ in busiest]


def _times() -> dict[tuple[int, str], float]:
    """CPU seconds of each process, by its id and name."""
    times = {}
    for process in psutil.process_iter(["pid", "name", "cpu_times"]):
        spent = process.info["cpu_times"]
        if spent is not None:
            times[process.info["pid"], str(process.info["name"])] = spent.user + spent.system
    return times


@dataclass(frozen=True)
class Look:
    """A reading of what the cores have done until now, from which on `other_work` looks: something else can be done meanwhile."""

    at: float = field(default_factory=time.monotonic)  # s
    processes: dict[tuple[int, str], float] = field(default_factory=_times)
    total: Any = field(default_factory=lambda: psutil.cpu_times())  # noqa: PLW0108 - tests replace it


def _on_gpus() -> str | None:
    """Processes that compute on a GPU that this process's environment shows; None without any, or where NVML does not tell."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver: the trials will say so themselves
        return None
    try:
        names = visible(pynvml.nvmlDeviceGetCount())
        found = [one for name in names for one in _on_gpu(pynvml, name)]
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    pids = sorted({int(one.pid) for one in found})
    if not pids:
        return None
    return f"process {pids[0]} computes on a GPU" if len(pids) == 1 else f"{len(pids)} processes compute on the GPUs (pid {pids[0]}, ...)"


def _on_gpu(pynvml: Any, name: str) -> list[Any]:
    """Processes with a context on it; none where NVML does not know the name or does not tell."""
    try:
        return list(pynvml.nvmlDeviceGetComputeRunningProcesses(handle_of(pynvml, name)))
    except pynvml.NVMLError:
        return []
