"""Intel Gaudi accelerators, through Habana's PyTorch bridge."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from cluster.devices import Batch, DeviceMemory, _hpu_tools
from cluster.devices.clock import Clock, EventClock, HostClock
from experiments.components.layers import bridge_fp8
from experiments.components.workload import Unsupported
from experiments.precision import Plain, Precision, around, needs_fp8_units

LAZY = "PT_HPU_LAZY_MODE"


def open_device(local_rank: int) -> Hpu:
    """The accelerator of this process. Raises Unsupported if there is none, and RuntimeError unless PT_HPU_LAZY_MODE is set."""
    if os.environ.get(LAZY) not in ("0", "1"):
        # if unset, the bridge assumes eager mode while optimum-habana and transformers assume lazy mode
        raise RuntimeError(f"{LAZY} must be 0 or 1 before habana_frameworks is imported; it is {os.environ.get(LAZY)!r}")
    try:
        import habana_frameworks.torch as bridge
        from habana_frameworks.torch import core, hpu
    except ImportError as error:
        raise Unsupported(f"device hpu: Habana's PyTorch bridge is not installed here ({error})") from error
    if not hpu.is_available():
        raise Unsupported("device hpu: the bridge sees no Gaudi here")
    return Hpu(local_rank, hpu, core, emulated=bool(getattr(bridge, "EMULATED", False)))


def init_process_group(**options: Any) -> None:
    """torch.distributed.init_process_group over HCCL, whatever back end `options` name. Replaces torch's for Ray Train's local mode."""
    from habana_frameworks.torch.distributed.hccl import initialize_distributed_hpu

    initialize_distributed_hpu()  # reads WORLD_SIZE, RANK and LOCAL_RANK, and acquires this rank's module
    _init_process_group(**{**options, "backend": "hccl"})


_init_process_group = torch.distributed.init_process_group


class Hpu:
    """The device `hpu`; its methods are documented in Device. A process has exactly one accelerator, with index 0."""

    kind = "hpu"
    compile_backend = "hpu_backend"
    releases_memory = False

    def __init__(self, local_rank: int, hpu: Any, core: Any, *, emulated: bool) -> None:
        self.torch_device = torch.device("hpu")
        self.lazy = os.environ[LAZY] == "1"
        self.emulated = emulated
        self._hpu, self._core = hpu, core
        try:
            rows = _hpu_tools.hl_smi()
        except _hpu_tools.ToolError:
            rows = []
        self._facts = _hpu_tools.own_row(rows)
        self._hlml = _hpu_tools.Hlml(int(self._facts.get("index") or local_rank))

    def unsupported(self, precision: Precision) -> str | None:
        if precision in ("fp16", "tf32"):
            return f"precision {precision}: a Gaudi trains in fp32 and bf16"
        lacks = bridge_fp8.why_not(precision) if needs_fp8_units(precision) else None
        return f"precision {precision}: {lacks}" if lacks else None

    def set_precision(self, precision: Plain) -> None:
        """Nothing: fp32 and bf16 need no switch."""

    def autocast(self, precision: Precision) -> AbstractContextManager[None]:
        plain = torch.autocast("hpu", torch.bfloat16) if around(precision) == "bf16" else nullcontext()
        return bridge_fp8.within(plain) if precision == bridge_fp8.ONLY else plain

    def scaler(self, precision: Plain) -> None:
        return None

    def set_threads(self, threads: int | None, ranks_here: int) -> int | None:
        if threads:
            torch.set_num_threads(threads)
        return torch.get_num_threads()

    def clock(self, *, synchronous: bool = False) -> Clock:
        return HostClock(synchronise=self.synchronize) if synchronous else HpuClock(self)

    def event(self) -> Any:
        """A new event with timing."""
        return self._hpu.Event(enable_timing=True)

    def flush(self) -> None:
        """End the graph that lazy mode is gathering and submit it."""
        if self.lazy:
            self._core.mark_step()

    def place(self, batch: Batch, prepare: Callable[[Batch], Batch], *, prefetch: bool) -> Batch:
        """Copy the batch. `prefetch` has no effect: copies do not block the host, and the device orders them."""
        device_batch = {
            name: value.to(self.torch_device, non_blocking=True) if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
        }
        return prepare(device_batch)

    def synchronize(self) -> None:
        self.flush()
        self._hpu.synchronize()

    def reset_peak_memory(self) -> None:
        self._hpu.reset_peak_memory_stats()

    def release_memory(self) -> None:
        """Nothing: the bridge has no known call that releases memory."""

    def peak_memory_bytes(self) -> int | None:
        return int(self._hpu.max_memory_allocated())

    def memory(self) -> DeviceMemory:
        stats = self._hpu.memory_stats()
        limit, used = int(stats["Limit"]), int(stats["InUse"])
        return DeviceMemory(limit, limit - used, used, used)  # the bridge does not tell what it only keeps for later

    def free_share_at_peak(self) -> float | None:
        stats = self._hpu.memory_stats()
        return 1 - float(stats["MaxInUse"]) / float(stats["Limit"])

    def alloc_retries(self) -> int | None:
        return None  # the bridge does not count them

    def energy_j(self) -> float | None:
        return None if self.emulated else self._hlml.energy_j()

    def accelerator_ids(self) -> list[str]:
        try:
            return [uuid for row in _hpu_tools.hl_smi(("uuid",)) if (uuid := row.get("uuid"))]
        except _hpu_tools.ToolError:
            return []

    def describe(self) -> dict[str, Any]:
        return {
            "device_kind": "hpu",
            "device_name": str(self._hpu.get_device_name()),
            "device_count": self._hpu.device_count(),
            "board": self._facts.get("name"),
            "driver": self._facts.get("driver_version"),
            "max_clock_mhz": _hpu_tools.number(self._facts.get("clocks.max.soc")),
            "power_limit_w": _hpu_tools.number(self._facts.get("power.max")),
            "device_memory_bytes": int(self._hpu.memory_stats()["Limit"]),
            "lazy_mode": self.lazy,
            **_hpu_tools.versions(),
            "clock": HpuClock.name,
        }


class HpuClock(EventClock):
    """Device events. Lazy mode would record an event before work that it is still gathering, so each mark submits that work first."""

    name = "hpu events"

    def __init__(self, device: Hpu) -> None:
        super().__init__(device.event, lambda: torch.zeros((), pin_memory=True))
        self._device = device

    def _record(self) -> Any:
        self._device.flush()
        return super()._record()
