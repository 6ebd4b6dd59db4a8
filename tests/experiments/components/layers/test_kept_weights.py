"""fp8 layers with fused kernels, whose operators have a plain form on the CPU: against float64, and with weights cast once an update."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from experiments.components.layers import fused
from experiments.components.layers.kept_weights import keep
from experiments.components.layers.low_precision import LowPrecisionLinear
from experiments.components.layers.whole import take_whole


def model_of() -> nn.Sequential:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 32))
    for at in (0, 2):
        made[at] = LowPrecisionLinear(made[at], "fp8", fused=True)  # type: ignore[arg-type]
    return made


def passed(model: Any, parameters: nn.Module) -> list[torch.Tensor]:
    """Output and gradients of a step on (3, 32, 64)."""
    draw = torch.Generator().manual_seed(1)
    x, gradient = torch.randn(3, 32, 64, generator=draw).requires_grad_(), torch.randn(3, 32, 32, generator=draw).bfloat16()
    parameters.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x)
    out.backward(gradient)
    return [out.detach(), x.grad, *(one.grad for one in parameters.parameters())]  # type: ignore[list-item]


def test_a_layer_is_float64s_up_to_8_bits() -> None:
    layer = model_of()[0]
    x, gradient = torch.randn(32, 64).bfloat16().requires_grad_(), torch.randn(32, 48).bfloat16()
    out = layer(x)
    out.backward(gradient)
    weight, bias, x64, g64 = (one.detach().double() for one in (layer.weight, layer.bias, x, gradient))  # type: ignore[union-attr,arg-type]
    for found, expected, limit in (
        (out, x64 @ weight.T + bias, 0.05),
        (x.grad, g64 @ weight, 0.05),
        (layer.weight.grad, g64.T @ x64, 0.05),  # type: ignore[union-attr]
        (layer.bias.grad, g64.sum(dim=0), 1e-6),  # type: ignore[union-attr]
    ):
        assert found is not None
        assert float((found.detach().double() - expected).norm() / expected.norm()) < limit  # type: ignore[union-attr,operator]


def test_weights_cast_before_give_the_same_numbers() -> None:
    model = model_of()
    expected = passed(model, model)
    kept = keep(model, compiled=False)
    assert kept is not None
    kept.refresh()
    assert all(torch.equal(one, other) for one, other in zip(passed(model, model), expected, strict=True))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.weight.mul_(3)  # type: ignore[union-attr,operator]
    assert torch.equal(passed(model, model)[0], expected[0]), "until they are cast anew"
    kept.refresh()
    for layer in (model[0], model[2]):
        small, small_t, scale = fused.cast_fp8(layer.weight.detach())  # type: ignore[union-attr,operator,arg-type]
        held: Any = layer.kept
        assert torch.equal(held[2], scale) and torch.equal(held[0].float(), small.float()) and torch.equal(held[1].float(), small_t.float())


def test_weights_in_bf16_are_cast_alike() -> None:
    model, expected = model_of(), model_of()
    model.bfloat16()
    for one in (model, expected):
        kept = keep(one, compiled=False)
        assert kept is not None
        kept.refresh()
    for layer, other in ((model[0], expected[0]), (model[2], expected[2])):
        mine: Any = layer.kept
        theirs: Any = other.kept
        assert torch.equal(mine[2], theirs[2]) and torch.equal(mine[0].float(), theirs[0].float())


@pytest.mark.parametrize("cast_once", [False, True])
def test_compiled_it_is_one_graph_with_the_same_numbers(cast_once: bool) -> None:
    take_whole()
    torch.compiler.reset()
    model = model_of()
    kept = keep(model, compiled=True) if cast_once else None
    if kept is not None:
        kept.refresh()
    expected = passed(model, model)
    found = passed(torch.compile(model, fullgraph=True, backend="aot_eager"), model)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    torch.compiler.reset()


def test_layers_of_one_shape_share_a_compiled_graph() -> None:
    take_whole()
    torch.compiler.reset()
    counters: Any = torch._dynamo.utils.counters
    counters.clear()
    layers = nn.ModuleList(LowPrecisionLinear(nn.Linear(32, 32), "fp8", fused=True) for _ in range(3))
    kept = keep(layers, compiled=True)
    assert kept is not None
    kept.refresh()
    outputs = []
    for layer in layers:
        layer.compile(backend="aot_eager")
        outputs.append(layer(torch.ones(32, 32).bfloat16().requires_grad_()))
    assert counters["stats"]["unique_graphs"] == 1 and not torch.equal(outputs[0], outputs[1])
    torch.compiler.reset()


def test_only_fused_fp8_layers_keep_theirs() -> None:
    layers = nn.ModuleList(
        [LowPrecisionLinear(nn.Linear(16, 16), "fp8_simulated"), LowPrecisionLinear(nn.Linear(16, 16), "int8_switchback", fused=True)]
    )
    assert keep(layers, compiled=False) is None and all(layer.kept is None for layer in layers)  # type: ignore[union-attr]


def test_a_cast_takes_16_bits() -> None:
    x, small = torch.ones(16, 16), torch.empty(16, 16, dtype=fused.FP8)
    with pytest.raises(ValueError, match="cast_into takes 16-bit tensors, and this is"):
        fused.cast_into(x, torch.ones(1), small, small)


def test_each_scale_lies_where_cublas_takes_it() -> None:
    layers = nn.ModuleList(LowPrecisionLinear(nn.Linear(16, 16), "fp8", fused=True) for _ in range(3))
    kept = keep(layers, compiled=False)
    assert kept is not None
    kept.refresh()
    for layer in layers:
        scale = layer.kept[2]  # type: ignore[index]
        assert scale.shape == (1,) and scale.data_ptr() % 16 == 0
        assert float(scale) == float(layer.weight.detach().bfloat16().float().abs().max() / fused.FP8_TOP)  # type: ignore[union-attr,operator]
