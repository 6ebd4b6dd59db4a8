"""What the cuda device tells about memory, on a pretended torch.cuda: allocator retries, the share at the peak, the cache given back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cluster.devices import DeviceMemory
from cluster.devices.cuda import Cuda


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> tuple[Cuda, dict[str, Any]]:
    state: dict[str, Any] = {"num_alloc_retries": 2, "reserved": 60, "peak": 90, "calls": [], "segments": []}

    def reset(device: Any) -> None:
        state["peak"] = state["reserved"]
        state["calls"].append("reset")

    def empty() -> None:
        state["reserved"] = 20
        state["calls"].append("empty")

    for name, replacement in {
        "memory_stats": lambda device: {"num_alloc_retries": state["num_alloc_retries"]},
        "max_memory_reserved": lambda device: state["peak"],
        "max_memory_allocated": lambda device: 40,
        "memory_snapshot": lambda: state["segments"],
        "get_device_properties": lambda device: SimpleNamespace(total_memory=100),
        "reset_peak_memory_stats": reset,
        "empty_cache": empty,
    }.items():
        monkeypatch.setattr(torch.cuda, name, replacement)
    device = Cuda.__new__(Cuda)
    device.torch_device, device._retries = torch.device("cuda", 0), 0
    return device, state


def test_allocator_retries_are_those_since_the_window_began(gpu: tuple[Cuda, dict[str, Any]]) -> None:
    device, state = gpu
    device.reset_peak_memory()
    assert device.alloc_retries() == 0
    state["num_alloc_retries"] = 7
    assert device.alloc_retries() == 5


def test_memory_is_what_the_driver_and_torchs_allocator_say(gpu: tuple[Cuda, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = gpu
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 100))  # free, total
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 80)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 60)
    assert device.memory() == DeviceMemory(total=100, free=7, reserved=80, allocated=60)


def test_the_cache_is_given_back_before_the_peak_is_forgotten(gpu: tuple[Cuda, dict[str, Any]]) -> None:
    """The other way round a smaller batch would be charged for what the larger one before it had reserved."""
    device, state = gpu
    assert device.free_share_at_peak() == pytest.approx(0.1)
    device.release_memory()
    assert state["calls"] == ["empty", "reset"]
    assert device.free_share_at_peak() == pytest.approx(0.8)


def test_what_cuda_graphs_compute_in_counts_although_no_replay_allocates_it(gpu: tuple[Cuda, dict[str, Any]]) -> None:
    device, state = gpu
    assert device.peak_memory_bytes() == 40
    for index, pool, total, allocated in ((0, (0, 0), 100, 10), (0, (0, 1), 30, 4), (0, (2, 0), 8, 0), (1, (0, 1), 500, 0)):
        state["segments"].append({"device": index, "segment_pool_id": pool, "total_size": total, "allocated_size": allocated})
    assert device.peak_memory_bytes() == 40 + 26 + 8, "of this device, and what is allocated only once"


def test_energy_is_in_joules_and_unknown_where_there_is_no_counter(
    gpu: tuple[Cuda, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, _ = gpu
    asked: dict[str, int | None] = {"nvmlDeviceGetTotalEnergyConsumption": 1_500}
    monkeypatch.setattr(device, "_ask", lambda function: asked[function])
    assert device.energy_j() == 1.5
    asked["nvmlDeviceGetTotalEnergyConsumption"] = None
    assert device.energy_j() is None
