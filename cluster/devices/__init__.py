"""One accelerator kind per file, behind one small protocol. The file's name is the kind. Imported on workers only."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from experiments.parameters import Precision

if TYPE_CHECKING:
    import torch

    from cluster.devices.clock import Clock

Batch = dict[str, Any]


class Device(Protocol):
    """What the measured loop asks of an accelerator. One instance per rank."""

    kind: str
    torch_device: torch.device
    compile_backend: str  # of torch.compile
    emulated: bool  # True where a test stands in for the accelerator: nothing it gives is a measurement
    releases_memory: bool  # True: after `release_memory` another batch size takes what it takes in a fresh process

    def unsupported(self, precision: Precision) -> str | None:
        """Why this device cannot compute in `precision`; None if it can."""

    def set_precision(self, precision: Precision) -> None:
        """Process-wide switches (TF32) for `precision`."""

    def autocast(self, precision: Precision) -> AbstractContextManager[None]:
        """The context of the forward pass."""

    def scaler(self, precision: Precision) -> torch.amp.GradScaler | None:
        """The loss scaler of fp16; None elsewhere."""

    def set_threads(self, threads: int | None, ranks_here: int) -> int | None:
        """Apply the number of intra-operator threads; returns what is in force where it matters."""

    def clock(self) -> Clock:
        """A fresh step clock."""

    def place(self, batch: Batch, prepare: Callable[[Batch], Batch], *, prefetch: bool) -> Batch:
        """Copy a host batch to the device and prepare it there; with `prefetch` beside what the device computes now."""

    def flush(self) -> None:
        """Hand the device what is still being gathered for it; nobody waits. Nothing where work is not gathered."""

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""

    def reset_peak_memory(self) -> None:
        """Start measuring peak memory and allocator retries anew."""

    def release_memory(self) -> None:
        """Give cached memory back and forget the peak. Nothing where `releases_memory` is False."""

    def peak_memory_bytes(self) -> int | None:
        """Most memory held by tensors since the reset (on a CPU: by the process, since it started)."""

    def free_share_at_peak(self) -> float | None:
        """Share (0..1) of the device's memory that was never reserved; None where the device has no memory of its own."""

    def alloc_retries(self) -> int | None:
        """Allocations that first had to release the allocator's cache, since the reset."""

    def energy_j(self) -> float | None:
        """The device's running energy counter in joules; differences mean something. None where there is none."""

    def describe(self) -> dict[str, Any]:
        """Plain scalars for the trial's environment: device_name, device_count, driver, clocks_mhz, power_limit_w, clock."""


def load(kind: str, local_rank: int = 0) -> Device:
    """The device of this rank. Raises LookupError for a kind without a file; Unsupported if this machine has no such device."""
    if not kind.isidentifier() or importlib.util.find_spec(f"cluster.devices.{kind}") is None:
        raise LookupError(f"device kind {kind!r}: there is no cluster/devices/{kind}.py")
    module = importlib.import_module(f"cluster.devices.{kind}")
    device: Device = module.open_device(local_rank)
    return device
