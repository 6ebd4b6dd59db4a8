"""NVIDIA GPUs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from cluster.devices import Batch, DeviceMemory
from cluster.devices.clock import Clock, EventClock, HostClock
from experiments.components.workload import Unsupported
from experiments.precision import Plain, Precision, around, needs_fp8_units

# The first compute capability with matrix units for TF32 and bf16 (Ampere), for fp8 (Ada, Hopper: 9.0), for fp8 in blocks of 32 (Blackwell)
TENSOR_FLOAT_CAPABILITY, FP8_CAPABILITY, MXFP8_CAPABILITY = (8, 0), (8, 9), (10, 0)


def open_device(local_rank: int) -> Cuda:
    """The GPU of this rank. Raises Unsupported on a machine without one."""
    if not torch.cuda.is_available():
        raise Unsupported("device cuda: torch sees no NVIDIA GPU here")
    return Cuda(local_rank % torch.cuda.device_count())


class Cuda:
    """The device `cuda`; its methods are documented in Device."""

    kind = "cuda"
    compile_backend = "inductor"
    emulated = False
    releases_memory = True

    def __init__(self, index: int) -> None:
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(self.torch_device)
        self._copies = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
        self._nvml = _nvml_handle(torch.cuda.get_device_properties(index))
        self._retries = 0

    def unsupported(self, precision: Precision) -> str | None:
        capability = torch.cuda.get_device_capability(self.torch_device)
        here = f"compute capability {capability[0]}.{capability[1]}"
        if around(precision) in ("tf32", "bf16") and capability < TENSOR_FLOAT_CAPABILITY:
            return f"precision {precision}: {here} is below 8.0"
        if precision == "mxfp8":
            if capability < MXFP8_CAPABILITY:
                return f"precision mxfp8: {here} is below 10.0, Blackwell's, the first with a scale for each block of 32 values"
            return f"precision mxfp8: {here} has the units, but nothing computes through them here yet"
        if needs_fp8_units(precision) and capability < FP8_CAPABILITY:
            return f"precision {precision}: {here} is below 8.9, the first with fp8 units; fp8_simulated computes with fp8's values"
        return None

    def set_precision(self, precision: Plain) -> None:
        tf32 = precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32  # on by default, which would make "fp32" convolutions TF32

    def autocast(self, precision: Precision) -> AbstractContextManager[None]:
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(around(precision))
        return torch.autocast("cuda", kind) if kind else nullcontext()

    def scaler(self, precision: Plain) -> torch.amp.GradScaler | None:
        return torch.amp.GradScaler("cuda") if precision == "fp16" else None

    def set_threads(self, threads: int | None, ranks_here: int) -> int | None:
        if threads:
            torch.set_num_threads(threads)
        return torch.get_num_threads()

    def clock(self, *, synchronous: bool = False) -> Clock:
        if synchronous:
            return HostClock(synchronise=self.synchronize)
        clock = EventClock(
            lambda: torch.cuda.Event(enable_timing=True, blocking=True),  # type: ignore[no-untyped-call]  # blocking: waiting leaves the core to the DataLoader
            lambda: torch.zeros((), pin_memory=True),
        )
        clock.name = "cuda events"
        return clock

    def place(self, batch: Batch, prepare: Callable[[Batch], Batch], *, prefetch: bool) -> Batch:
        if not prefetch:
            return prepare(self._copy(batch))
        compute = torch.cuda.current_stream(self.torch_device)
        with torch.cuda.stream(self._copies):
            device_batch = prepare(self._copy(batch))
        compute.wait_stream(self._copies)
        for value in device_batch.values():
            if isinstance(value, torch.Tensor) and value.is_cuda:
                value.record_stream(compute)  # allocated on another stream: keep its memory until the compute stream has read it
        return device_batch

    def _copy(self, batch: Batch) -> Batch:
        return {
            name: value.to(self.torch_device, non_blocking=True) if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
        }

    def flush(self) -> None:
        """Nothing: operations are submitted at once."""

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def reset_peak_memory(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.torch_device)
        self._retries = int(torch.cuda.memory_stats(self.torch_device).get("num_alloc_retries", 0))

    def release_memory(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        self.reset_peak_memory()

    def peak_memory_bytes(self) -> int | None:
        return int(torch.cuda.max_memory_allocated(self.torch_device)) + self._held_by_graphs()

    def _held_by_graphs(self) -> int:
        """Bytes of CUDA graphs' own pools that count as free: graphs compute there, and a replay allocates nothing."""
        segments: list[dict[str, Any]] = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        pools = [one for one in segments if one["device"] == self.torch_device.index and any(one["segment_pool_id"])]
        return sum(int(one["total_size"]) - int(one["allocated_size"]) for one in pools)

    def memory(self) -> DeviceMemory:
        free, total = torch.cuda.mem_get_info(self.torch_device)
        return DeviceMemory(total, free, torch.cuda.memory_reserved(self.torch_device), torch.cuda.memory_allocated(self.torch_device))

    def free_share_at_peak(self) -> float | None:
        total = torch.cuda.get_device_properties(self.torch_device).total_memory
        return 1 - torch.cuda.max_memory_reserved(self.torch_device) / total

    def alloc_retries(self) -> int | None:
        return int(torch.cuda.memory_stats(self.torch_device).get("num_alloc_retries", 0)) - self._retries

    def energy_j(self) -> float | None:
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000

    def accelerator_ids(self) -> list[str]:
        if self._nvml is None:
            return []
        import pynvml

        try:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            return [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        except pynvml.NVMLError:
            return []

    def describe(self) -> dict[str, Any]:
        limit = self._ask("nvmlDeviceGetPowerManagementLimit")
        return {
            "device_kind": "cuda",
            "device_name": torch.cuda.get_device_name(self.torch_device),
            "device_count": torch.cuda.device_count(),
            "driver": self._driver(),
            "cuda": torch.version.cuda,
            "max_clock_mhz": self._ask("nvmlDeviceGetMaxClockInfo", 1),  # 1: the multiprocessors' clock
            "application_clocks_mhz": self._ask("nvmlDeviceGetApplicationsClock", 1),
            "power_limit_w": None if limit is None else limit / 1000,
            "device_memory_bytes": int(torch.cuda.get_device_properties(self.torch_device).total_memory),
            "clock": "cuda events",
        }

    def _ask(self, function: str, *arguments: Any) -> Any:
        """The result of an NVML function for this GPU; None if NVML or this GPU does not provide it."""
        if self._nvml is None:
            return None
        import pynvml

        try:
            return getattr(pynvml, function)(self._nvml, *arguments)
        except (pynvml.NVMLError, AttributeError):
            return None

    def _driver(self) -> str | None:
        if self._nvml is None:
            return None
        import pynvml

        try:
            return _text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError:
            return None


def _text(value: str | bytes) -> str:
    """A text of NVML's, which older versions of pynvml give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _nvml_handle(properties: Any) -> Any:
    """NVML's handle of the GPU with torch's `properties`, found by UUID since NVML ignores CUDA_VISIBLE_DEVICES; None without pynvml."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}".encode())
    except (pynvml.NVMLError, AttributeError):
        return None
