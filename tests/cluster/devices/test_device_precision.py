"""Which precision a device can compute in, and what it says of the others."""

from __future__ import annotations

import sys
from types import ModuleType
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


@pytest.mark.parametrize("there", [True, False])
def test_a_gaudi_has_the_fp8_of_its_bridges_transformer_engine(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "habana_frameworks.torch.hpex.experimental.transformer_engine"
    for at in range(1, name.count(".") + 2):
        module = ModuleType(parent := ".".join(name.split(".")[:at]))
        monkeypatch.setitem(sys.modules, parent, module if there or parent != name else None)
    gaudi = Hpu.__new__(Hpu)  # without a Gaudi
    lacking = {name: why for name in get_args(Precision) if (why := gaudi.unsupported(name))}
    assert set(lacking) == {"fp16", "tf32", "mxfp8", *FP8} - ({"fp8"} if there else set())
    assert lacking["fp8_rowwise"] == "precision fp8_rowwise: a Gaudi's own fp8 has a scale for each tensor, which is precision fp8"
    if not there:
        assert lacking["fp8"].startswith("precision fp8: the bridge here has no transformer engine (")


def test_around_layers_of_8_bits_a_cpu_computes_in_bf16() -> None:
    for precision, kind in (
        ("fp8_simulated", torch.bfloat16),
        ("int8_switchback", torch.bfloat16),
        ("bf16", torch.bfloat16),
        ("fp32", None),
    ):
        with Cpu().autocast(precision):
            assert torch.is_autocast_enabled("cpu") == (kind is not None)
            assert kind is None or torch.get_autocast_dtype("cpu") is kind
