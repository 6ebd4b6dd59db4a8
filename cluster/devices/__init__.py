"""Devices: one file per kind of accelerator, all behind the protocol Device. The file's name is the kind. Imported on workers only."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # a process that only asks an accelerator's tools imports this package too, and nothing heavy with it
    import torch

    from cluster.devices.clock import Clock
    from experiments.precision import Plain, Precision

Batch = dict[str, Any]


@dataclass(frozen=True)
class DeviceMemory:
    """A device's memory at one moment, in bytes. What is neither free nor reserved is used outside torch, by this process or others."""

    total: int
    free: int
    reserved: int  # by torch's allocator, with what it keeps for later
    allocated: int  # of that, by tensors


class Device(Protocol):
    """What a trial needs of an accelerator. One instance per rank."""

    kind: str
    torch_device: torch.device
    compile_backend: str  # of torch.compile
    emulated: bool  # True for an emulated accelerator: its results are not measurements
    releases_memory: bool  # True: `release_memory` gives back what no tensor uses, but for what lies in pieces between those that are used

    def unsupported(self, precision: Precision) -> str | None:
        """Why this device cannot compute in `precision`; None if it can. Which libraries are there is not asked here."""

    def set_precision(self, precision: Plain) -> None:
        """Set the process-wide switches (TF32) for `precision`."""

    def autocast(self, precision: Precision) -> AbstractContextManager[None]:
        """The context in which the forward pass computes in `precision`; what surrounds linear layers of 8 bits, in bf16."""

    def scaler(self, precision: Plain) -> torch.amp.GradScaler | None:
        """The loss scaler for fp16; None for other precisions."""

    def set_threads(self, threads: int | None, ranks_here: int) -> int | None:
        """Set the number of intra-operator threads (None: the device's default) and return it. `ranks_here`: ranks on this node."""

    def clock(self, *, synchronous: bool = False) -> Clock:
        """A new step clock; `synchronous`: on the host, with the device's work done at the end of each step."""

    def place(self, batch: Batch, prepare: Callable[[Batch], Batch], *, prefetch: bool) -> Batch:
        """Copy a host batch to the device and prepare it there; with `prefetch` concurrently with the device's computation."""

    def flush(self) -> None:
        """Submit operations that are still queued on the host, without waiting. Does nothing on devices that queue none."""

    def synchronize(self) -> None:
        """Wait until the device has finished all submitted work."""

    def reset_peak_memory(self) -> None:
        """Restart the measurement of peak memory and allocator retries."""

    def release_memory(self) -> None:
        """Release cached memory and reset the peak. Does nothing if `releases_memory` is False."""

    def peak_memory_bytes(self) -> int | None:
        """Peak memory of tensors since the reset, in bytes; on a CPU the peak of the process since it started."""

    def memory(self) -> DeviceMemory | None:
        """The device's memory now; None if it has none of its own."""

    def free_share_at_peak(self) -> float | None:
        """Share (0 to 1) of the device's memory free at the peak; None if the device has no memory of its own."""

    def alloc_retries(self) -> int | None:
        """Allocations since the reset that first had to release the allocator's cache; None if unknown."""

    def energy_j(self) -> float | None:
        """The device's cumulative energy counter in joules; only differences are meaningful. None if there is no counter."""

    def accelerator_ids(self) -> list[str]:
        """Stable ids of all accelerators of this host, not only the trial's; [] where they are unknown. Only a hash of them is recorded."""

    def describe(self) -> dict[str, Any]:
        """Plain scalars for the trial's environment: device_name, device_count, driver, max_clock_mhz, power_limit_w, clock.

        max_clock_mhz is the highest clock of the card. What it ran at is in the trial's device state (experiments/device_state.py).
        """


def load(kind: str, local_rank: int = 0) -> Device:
    """The device of this rank. Raises LookupError for an unknown kind, and Unsupported if this machine has no such device."""
    if not kind.isidentifier() or importlib.util.find_spec(f"cluster.devices.{kind}") is None:
        raise LookupError(f"device kind {kind!r}: there is no cluster/devices/{kind}.py")
    module = importlib.import_module(f"cluster.devices.{kind}")
    device: Device = module.open_device(local_rank)
    return device
