"""Which of a host's NVIDIA GPUs a process's environment shows, and NVML's handles of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any


def visible(count: int, environment: Mapping[str, str] = os.environ) -> Sequence[str]:
    """Index (in NVML's order) or UUID of the first `count` GPUs that CUDA shows to this process's environment: those before the first
    that is none, such as -1."""
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return [str(index) for index in range(count)]
    names = [name.strip() for name in listed.split(",")]
    return list(takewhile(lambda name: name and not name.startswith("-"), names))[:count]


def handle_of(pynvml: Any, name: str) -> Any:
    """NVML's handle of a GPU by index or UUID; of a part of a GPU (MIG) that of the whole, which has the clocks."""
    if name.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(name))
    handle = pynvml.nvmlDeviceGetHandleByUUID(name.encode())
    return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if name.startswith("MIG-") else handle
