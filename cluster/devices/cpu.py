"""The host's own cores."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from cluster.devices import Batch
from cluster.devices._processor import model_name
from cluster.devices.clock import Clock, HostClock
from experiments.precision import Plain, Precision, around, needs_fp8_units

_STATUS = Path("/proc/self/status")
_PEAK = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)


def open_device(local_rank: int) -> Cpu:
    """The host's cores, which all ranks share."""
    return Cpu()


class Cpu:
    """The device `cpu`; its methods are documented in Device."""

    kind = "cpu"
    compile_backend = "inductor"
    emulated = False
    releases_memory = False

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")

    def unsupported(self, precision: Precision) -> str | None:
        if precision in ("tf32", "fp16"):
            return f"precision {precision}: a CPU has fp32 and bf16 only"
        if needs_fp8_units(precision):
            return f"precision {precision}: a CPU has no fp8 units; fp8_simulated computes with the values that fp8 would hold"
        return None

    def set_precision(self, precision: Plain) -> None:
        """Nothing: fp32 and bf16 need no switch."""

    def autocast(self, precision: Precision) -> AbstractContextManager[None]:
        return torch.autocast("cpu", torch.bfloat16) if around(precision) == "bf16" else nullcontext()

    def scaler(self, precision: Plain) -> None:
        return None

    def set_threads(self, threads: int | None, ranks_here: int) -> int | None:
        torch.set_num_threads(threads or max(1, len(os.sched_getaffinity(0)) // ranks_here))
        return torch.get_num_threads()

    def clock(self, *, synchronous: bool = False) -> Clock:
        return HostClock(synchronise=self.synchronize if synchronous else None)

    def place(self, batch: Batch, prepare: Callable[[Batch], Batch], *, prefetch: bool) -> Batch:
        return prepare(batch)

    def flush(self) -> None:
        """Nothing: operations are not queued."""

    def synchronize(self) -> None:
        """Nothing: operations are synchronous."""

    def reset_peak_memory(self) -> None:
        """Nothing: the operating system counts from the start of the process."""

    def release_memory(self) -> None:
        """Nothing: the memory is the host's."""

    def peak_memory_bytes(self) -> int | None:
        """VmHWM of proc(5). Not ru_maxrss of getrusage(2), which a program that is started takes over from who started it."""
        found = _PEAK.search(_STATUS.read_text()) if _STATUS.exists() else None
        return int(found.group(1)) * 1024 if found else None

    def memory(self) -> None:
        return None

    def free_share_at_peak(self) -> float | None:
        return None

    def alloc_retries(self) -> int | None:
        return None

    def energy_j(self) -> float | None:
        return None

    def accelerator_ids(self) -> list[str]:
        return []

    def describe(self) -> dict[str, Any]:
        return {
            "device_kind": "cpu",
            "device_name": model_name(),
            "device_count": 1,
            "driver": None,
            "max_clock_mhz": None,
            "power_limit_w": None,
            "clock": HostClock.name,
        }
