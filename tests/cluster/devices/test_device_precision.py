"""Which precision a device can compute in, and what it says of the others."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from cluster.devices.cpu import Cpu
from cluster.devices.cuda import Cuda
from cluster.devices.hpu import Hpu
from experiments.precision import Precision

FP8 = {"fp8", "fp8_rowwise", "fp8_switchback"}


def refused(capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Precision -> why, on a GPU of this compute capability."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    gpu = Cuda.__new__(Cuda)  # without a GPU
    gpu.torch_device = torch.device("cuda", 0)
    return {name: why for name in get_args(Precision) if (why := gpu.unsupported(name))}


@pytest.mark.parametrize(
    ("capability", "lacking"),
    [
        ((7, 0), set(get_args(Precision)) - {"fp32", "fp16"}),
        ((8, 0), {"mxfp8", *FP8}),
        ((8, 9), {"mxfp8"}),
        ((9, 0), {"mxfp8"}),
        ((10, 0), {"mxfp8"}),
    ],
)
def test_a_gpu_has_what_its_generation_has(capability: tuple[int, int], lacking: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(refused(capability, monkeypatch)) == lacking


def test_a_gpu_says_what_it_would_need(monkeypatch: pytest.MonkeyPatch) -> None:
    ampere, hopper, blackwell = (refused(capability, monkeypatch) for capability in ((8, 0), (9, 0), (10, 0)))
    assert ampere["fp8"] == (
        "precision fp8: compute capability 8.0 is below 8.9, the first with fp8 units; fp8_simulated computes with fp8's values"
    )
    assert hopper["mxfp8"].startswith("precision mxfp8: compute capability 9.0 is below 10.0, Blackwell's")
    assert "nothing computes through them here yet" in blackwell["mxfp8"]


def test_a_cpu_simulates_fp8_and_has_none() -> None:
    cpu = Cpu()
    lacking = {name for name in get_args(Precision) if cpu.unsupported(name)}
    assert lacking == {"fp16", "tf32", "mxfp8", *FP8}
    assert cpu.unsupported("fp8") == "precision fp8: a CPU has no fp8 units; fp8_simulated computes with the values that fp8 would hold"


def test_a_gaudis_own_fp8_is_not_reached_from_here() -> None:
    gaudi = Hpu.__new__(Hpu)  # without a Gaudi
    lacking = {name: why for name in get_args(Precision) if (why := gaudi.unsupported(name))}
    assert set(lacking) == {"fp16", "tf32", "mxfp8", *FP8}
    assert "needs the bridge's transformer engine" in lacking["fp8"]
