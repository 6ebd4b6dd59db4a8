"""The fused low-precision kernels on a GPU, against the plain arms, which other tests hold against float64. `make test-gpu` runs them."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import nn

from experiments.components.layers import fused, low_precision
from experiments.components.layers.kept_weights import keep
from experiments.components.layers.low_precision import LowPrecisionLinear
from experiments.precision import FUSED, Precision

CUDA = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
pytestmark = pytest.mark.skipif(not CUDA, reason="needs a GPU of compute capability 9.0")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # compile in this process: none is left behind
PLAIN: dict[str, Precision] = {"int8_switchback": "int8_switchback", "fp8_switchback": "fp8_simulated_switchback", "fp8": "fp8_simulated"}
ROWS, INPUTS, OUTPUTS = 640, 352, 208  # no multiples of a kernel's tile


def drawn() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x (ROWS, INPUTS), W (OUTPUTS, INPUTS) fp32, G (ROWS, OUTPUTS), of rows with different magnitudes."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.logspace(-1, 1, ROWS)[:, None]
    x, weight, gradient = (torch.randn(shape, generator=draw) for shape in ((ROWS, INPUTS), (OUTPUTS, INPUTS), (ROWS, OUTPUTS)))
    return (x * rows).bfloat16().cuda(), weight.cuda(), (gradient * rows).bfloat16().cuda()


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def test_rows_are_quantised_as_by_torch() -> None:
    x, _, _ = drawn()
    found, scale = fused.quantise_rows(x)
    expected, expected_scale = low_precision.quantise(x, 1)
    torch.testing.assert_close(scale, expected_scale, rtol=1e-6, atol=0)
    assert int((found.int() - expected.int()).abs().max()) <= 1  # a value half-way, divided by another kernel
    assert float((found != expected).float().mean()) < 1e-3
    compiled, _ = torch.compile(fused.quantise_rows)(x)
    assert float((compiled != expected).float().mean()) < 1e-3


@pytest.mark.parametrize("shape", [(OUTPUTS, INPUTS), (4096, 1024), (1280, 5120)])
@pytest.mark.parametrize("fp8", [False, True])
def test_a_cast_gives_the_tensor_as_it_lies_and_transposed(fp8: bool, shape: tuple[int, int]) -> None:
    weight = torch.rand(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(0)) - 0.5
    weight = weight.bfloat16().float()
    small, small_t, scale = fused.cast_tensor(weight, fp8=fp8)
    assert torch.equal(small.float().t(), small_t.float())
    top = fused.FP8_TOP if fp8 else fused.INT8_TOP
    expected = (weight / scale).clamp(-top, top)
    expected = expected.to(fused.FP8).float() if fp8 else expected.round()
    assert float((small.float() != expected).float().mean()) < 1e-3


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_applies_its_scales_and_bias(fp8: bool, by_column: bool, bias: bool) -> None:
    x, weight, _ = drawn()
    a, a_scale = fused.cast_rows(x) if fp8 else fused.quantise_rows(x)
    b, b_scale = fused.cast_rows(weight) if fp8 else fused.quantise_rows(weight)
    if not by_column:
        b_scale = b_scale.amax(dim=0)
    offset = torch.arange(OUTPUTS, device="cuda").bfloat16() if bias else None
    found = fused.scaled_matmul(a, b, a_scale, b_scale, offset, torch.bfloat16)
    expected = (a.double() @ b.double().t()) * a_scale * b_scale.reshape(1, -1)
    expected = expected + offset if offset is not None else expected
    assert error(found, expected) < 5e-3


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", FUSED)
def test_fused_kernels_give_what_plain_operations_give(precision: Precision, compiled: bool) -> None:
    x, weight, gradient = drawn()
    plain: Precision = PLAIN[precision]
    found: dict[str, list[torch.Tensor]] = {}
    for name, kernels in ((precision, "fused"), (plain, "stock")):
        holder: Any = nn.Sequential(LowPrecisionLinear(nn.Linear(INPUTS, OUTPUTS).cuda(), name, fused=kernels == "fused"))
        with torch.no_grad():
            holder[0].weight.copy_(weight)
            holder[0].bias.fill_(0.5)
        if compiled and kernels == "fused":
            holder[0].compile()
        inputs = x.clone().requires_grad_()
        with torch.autocast("cuda", torch.bfloat16):
            out = holder(inputs)
        out.backward(gradient)
        found[kernels] = [out.detach(), inputs.grad, holder[0].weight.grad, holder[0].bias.grad]
        assert holder[0].weight.grad.dtype is torch.float32
    # fp8_switchback has a scale for each row where the simulation has one for the tensor: both within fp8's rounding
    limit = 0.05 if precision == "fp8_switchback" else 0.02
    for ours, theirs in zip(found["fused"], found["stock"], strict=True):
        assert error(ours, theirs) < limit, precision


def test_kept_weights_are_cast_anew_by_a_recorded_graph() -> None:
    layers = nn.ModuleList(LowPrecisionLinear(nn.Linear(INPUTS, width).cuda(), "fp8", fused=True) for width in (OUTPUTS, 1280, 64))
    kept = keep(layers, compiled=True)
    assert kept is not None
    for factor in (1, 3, 0.5):  # the first time is recorded, the others are replayed
        with torch.no_grad():
            for layer in layers:
                layer.weight.mul_(factor)  # type: ignore[operator,union-attr]
        kept.refresh()
        for layer in layers:
            expected = fused.cast_fp8(layer.weight.detach())  # type: ignore[operator,union-attr,arg-type]
            for one, other in zip(layer.kept, expected, strict=True):  # type: ignore[arg-type]
                assert torch.equal(one.float(), other.float())


def test_a_captured_graph_holds_no_break() -> None:
    """Else each layer's compilation falls apart, and quantising is no longer part of the kernel before it."""
    x, weight, _ = drawn()

    def call(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return fused.apply("fp8", nn.functional.gelu(x), weight, None)

    out = torch.compile(call, fullgraph=True)(x, weight.requires_grad_())
    out.sum().backward()
    assert weight.grad is not None
