"""The trial's NVIDIA GPUs: clocks, power, temperature, what caps the clock, and who else computes on them. Through NVML (nvidia-ml-py)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from cluster.sampler.trial_processes import TrialProcesses
from cluster.visible_gpus import handle_of, visible
from experiments.device_state import BRAKE, HARDWARE, POWER, SYNC_BOOST, THERMAL

# Bits of nvmlDeviceGetCurrentClocksEventReasons; https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
REASONS = {
    0x1: "idle",
    0x2: "applications clocks setting",
    0x4: POWER,
    0x8: HARDWARE,
    0x10: SYNC_BOOST,
    0x20: THERMAL,  # decided by the driver
    0x40: THERMAL,  # by the hardware
    0x80: BRAKE,
    0x100: "display clock setting",
}
SM, MEMORY, CORE_SENSOR = 1, 2, 0  # NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU
_HOSTS_NAMESPACE = "pid:[4026531836]"  # of process ids: PROC_PID_INIT_INO in Linux's include/linux/proc_ns.h


class NvmlSource:
    """Reads the GPUs that this process's environment shows, the first `count` of them."""

    name = "devices"
    emulated = False

    def __init__(self, count: int, processes: TrialProcesses, environment: Mapping[str, str] = os.environ) -> None:
        """Raises ImportError without nvidia-ml-py, and pynvml.NVMLError without a driver or such a GPU."""
        import pynvml

        self._nvml, self._processes = pynvml, processes
        pynvml.nvmlInit()
        self._gpus = [(name, handle_of(pynvml, name)) for name in visible(count, environment)]
        self._uuids = [_text(pynvml.nvmlDeviceGetUUID(handle)) for _, handle in self._gpus]
        self._elsewhere = self._other_gpus()
        self._foreign_ids = _namespace() != _HOSTS_NAMESPACE
        self._users: dict[int, str | None] = {}

    def missing(self) -> dict[str, str]:
        """What these GPUs do not tell: the fields of a reading that are null now."""
        return {f"devices.{name}": "not supported by NVML here" for one in self.read() for name, value in one.items() if value is None}

    def read(self) -> list[dict[str, Any]]:
        """The field `devices` of a state record; null where a GPU does not tell."""
        ask, readings, neighbours = self._ask, [], self._neighbours()
        for index, ((_, handle), uuid) in enumerate(zip(self._gpus, self._uuids, strict=True)):
            power = ask("nvmlDeviceGetPowerUsage", handle)
            readings.append(
                {
                    "index": index,
                    "uuid": uuid,
                    "sm_mhz": ask("nvmlDeviceGetClockInfo", handle, SM),
                    "memory_mhz": ask("nvmlDeviceGetClockInfo", handle, MEMORY),
                    "power_w": None if power is None else power / 1000,
                    "temperature_c": ask("nvmlDeviceGetTemperature", handle, CORE_SENSOR),
                    "capped_by": self._capped_by(handle),
                    "others": self._others(handle),
                    "neighbours": neighbours,
                }
            )
        return readings

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(*arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _capped_by(self, handle: Any) -> list[str] | None:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # drivers before 535 have the old name only
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return None if bits is None else reasons(bits)

    def _others(self, handle: Any) -> list[dict[str, Any]] | None:
        """Processes that compute on the GPU and are not the trial's.

        In a container NVML may give the host's process ids, among which the trial's own cannot be told. One of them is then taken to be
        the trial's, since a GPU is used by one of its ranks.
        """
        listed = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if listed is None:
            return None
        own = self._processes.pids
        others = [one for one in listed if one.pid not in own]
        unknown = self._foreign_ids and len(others) == len(listed)
        if unknown:
            others = others[1:]
        return [
            {"pid": one.pid, "user": None if unknown else self._user(one.pid), "memory_bytes": getattr(one, "usedGpuMemory", None)}
            for one in others
        ]

    def _other_gpus(self) -> list[Any] | None:
        """Handles of the GPUs that NVML shows here beside the trial's; None where it does not tell."""
        indices = range(self._ask("nvmlDeviceGetCount") or 0)
        handles = [self._ask("nvmlDeviceGetHandleByIndex", index) for index in indices]
        uuids = [None if handle is None else self._ask("nvmlDeviceGetUUID", handle) for handle in handles]
        known = [_text(uuid) for uuid in uuids if uuid is not None]
        if not known or len(known) < len(uuids):
            return None
        return [handle for handle, uuid in zip(handles, known, strict=True) if uuid not in self._uuids]

    def _neighbours(self) -> int | None:
        """On how many of them a process that is not the trial's has a context: they may share cores, memory and links with the trial."""
        if self._elsewhere is None:
            return None
        listed = [self._ask("nvmlDeviceGetComputeRunningProcesses", handle) for handle in self._elsewhere]
        if None in listed:
            return None
        return sum(any(one.pid not in self._processes.pids for one in processes) for processes in listed)

    def _user(self, pid: int) -> str | None:
        if pid not in self._users:
            try:
                self._users[pid] = psutil.Process(pid).username()
            except (psutil.Error, OSError, KeyError):
                self._users[pid] = None
        return self._users[pid]

    def close(self) -> None:
        """Release NVML."""
        self._ask("nvmlShutdown")


def reasons(bits: int) -> list[str]:
    """The words for NVML's bits, each once; a bit without a word as `reason 0x200`."""
    found = [REASONS.get(1 << bit, f"reason {1 << bit:#x}") for bit in range(bits.bit_length()) if bits >> bit & 1]
    return list(dict.fromkeys(found))


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return _HOSTS_NAMESPACE


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
