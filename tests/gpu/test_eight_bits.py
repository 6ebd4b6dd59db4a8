"""Linear layers in 8 bits on a GPU against float64, ours and torchao's, eager and compiled. `make test-gpu` runs them."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest
import torch
from torch import nn

from experiments.components.layers.convert import RECIPES, convert
from experiments.parameters import TrainingParameters
from experiments.precision import FUSED, Precision

CUDA = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
pytestmark = pytest.mark.skipif(not CUDA, reason="needs a GPU of compute capability 9.0")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # compile in this process: none is left behind
TORCHAO = importlib.util.find_spec("torchao") is not None
STOCK: tuple[Precision, ...] = ("fp8", "fp8_rowwise", "fp8_switchback", "int8_switchback")
ARMS = [*((name, "stock") for name in STOCK), *((name, "fused") for name in FUSED)]
# Limits of the relative error over all values, against float64, of rounding two factors to 8 bits. e5m2, which torchao's tensor-wise
# recipe has for gradients, has two bits of mantissa instead of three
OUT, GRADIENTS = 0.05, 0.08


def converted(precision: Precision, kernels: str, compile_: str, batch_size: int, inputs: int, outputs: int) -> tuple[Any, Any]:
    """(a layer in this precision, the same in float64)."""
    if kernels == "stock" and precision in RECIPES and not TORCHAO:
        pytest.skip("torchao is not installed")
    torch.manual_seed(0)
    exact = nn.Linear(inputs, outputs).double().cuda()
    model = nn.Sequential(nn.Linear(inputs, outputs).cuda())
    model.load_state_dict({f"0.{name}": value for name, value in exact.state_dict().items()})
    parameters = TrainingParameters(precision=precision, kernels=kernels, compile=compile_, batch_size=batch_size)  # type: ignore[arg-type]
    convert(model, [model[0]], parameters, "cuda")
    if compile_ == "layer":
        model[0].compile(fullgraph=True)
    return model[0], exact


@pytest.mark.parametrize("rows", [640, 500])  # a multiple of 16, and none
@pytest.mark.parametrize("compile_", ["none", "layer"])
@pytest.mark.parametrize(("precision", "kernels"), ARMS)
def test_output_and_gradients_are_float64s_up_to_8_bits(precision: Precision, kernels: str, compile_: str, rows: int) -> None:
    layer, exact = converted(precision, kernels, compile_, rows, 352, 208)
    x = torch.randn(rows, 352, device="cuda").bfloat16()
    gradient = torch.randn(rows, 208, device="cuda").bfloat16()
    inputs, exact_inputs = x.clone().requires_grad_(), x.double().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16):
        out = layer(inputs)
    assert out.dtype is torch.bfloat16
    out.backward(gradient)
    expected = exact(exact_inputs)
    expected.backward(gradient.double())
    for what, found, wanted, limit in (
        ("output", out, expected, OUT),
        ("gradient of x", inputs.grad, exact_inputs.grad, GRADIENTS),
        ("gradient of W", layer.weight.grad, exact.weight.grad, GRADIENTS),
        ("gradient of the bias", layer.bias.grad, exact.bias.grad, 0.01),
    ):
        error = float((found.double() - wanted).norm() / wanted.norm())
        assert error < limit, (what, error)


@pytest.mark.parametrize(("precision", "kernels"), ARMS)
def test_a_width_of_2048_compiles_and_trains(precision: Precision, kernels: str) -> None:
    """SwitchBack in torch's operations ended in dynamo's AssertionError there."""
    torch.compiler.reset()
    one, _ = converted(precision, kernels, "layer", 4096, 2048, 8192)
    other, _ = converted(precision, kernels, "layer", 4096, 8192, 2048)
    x = torch.randn(4096, 2048, device="cuda", requires_grad=True)
    for _ in range(2):
        with torch.autocast("cuda", torch.bfloat16):
            loss = other(one(x)).float().square().mean()
        loss.backward()
    assert bool(loss.isfinite()) and x.grad is not None and bool(x.grad.isfinite().all())
    assert all(bool(layer.weight.grad.isfinite().all()) and bool(layer.weight.grad.any()) for layer in (one, other))


@pytest.mark.skipif(not TORCHAO, reason="torchao is not installed")
@pytest.mark.parametrize("compile_", ["none", "layer"])
def test_torchaos_layers_compute_in_inference_mode_too(compile_: str) -> None:
    layer, exact = converted("fp8", "stock", compile_, 1, 352, 208)
    x = torch.randn(1, 352, device="cuda").bfloat16()
    layer.to(torch.bfloat16).eval()
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
        found = layer(x)
    expected = exact(x.double())
    assert float((found.double() - expected).norm() / expected.norm()) < OUT
