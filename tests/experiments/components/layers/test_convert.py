"""Which layers of a model get a precision of their own, and what is refused where."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn

from experiments.components.layers.attention import ApartAttention
from experiments.components.layers.convert import convert
from experiments.components.layers.low_precision import LowPrecisionLinear
from experiments.components.workload import Unsupported
from experiments.parameters import TrainingParameters


class Model(nn.Module):
    """An embedding, two blocks (attention, a linear layer, one too narrow) and a head."""

    blocks: Any

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(32, 32)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"attention": nn.MultiheadAttention(32, 4), "up": nn.Linear(32, 64), "gate": nn.Linear(32, 8)}) for _ in range(2)
        )
        self.head = nn.Linear(32, 16)


def converted(model: nn.Module, blocks: Any, kind: str = "cpu", **changes: Any) -> str:
    return convert(model, list(blocks), TrainingParameters(**{"precision": "int8_switchback", **changes}), kind)


def test_linear_layers_of_the_blocks_are_replaced_and_keep_their_parameters() -> None:
    model = Model()
    before = {id(parameter) for parameter in model.parameters()}
    said = converted(model, model.blocks)
    for block in model.blocks:
        assert isinstance(block["attention"], ApartAttention) and type(block["gate"]) is nn.Linear, "a width of 8"
        replaced = (block["attention"].in_proj, block["attention"].out_proj, block["up"])
        assert all(type(layer) is LowPrecisionLinear for layer in replaced)
    assert type(model.embed) is nn.Linear and type(model.head) is nn.Linear, "outside the blocks"
    assert {id(parameter) for parameter in model.parameters()} == before
    weights = 2 * (3 * 32 * 32 + 32 * 32 + 32 * 64)
    share = weights / sum(parameter.numel() for parameter in model.parameters())
    assert said == (
        f"precision int8_switchback, kernels stock: 6 linear layers, {share:.1%} of the model's parameters; "
        "2 more in the blocks have widths not divisible by 16"
    )


def test_a_block_may_be_a_layer_itself_a_layer_may_have_two_places_and_a_frozen_one_stays_frozen() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Sequential(nn.Linear(16, 16)))
    model.append(model[0])
    model[0].requires_grad_(False)
    model.eval()
    converted(model, [model[0], model[1]])
    assert model[0] is model[2] and type(model[1][0]) is LowPrecisionLinear  # type: ignore[index]
    assert not model[0].weight.requires_grad and not model[0].training


def test_a_model_with_nothing_to_replace_is_unsupported() -> None:
    model = Model()
    for blocks in ([], [model.blocks[0]["gate"]]):
        with pytest.raises(Unsupported, match="no block of this model has a linear layer with widths divisible by 16"):
            converted(model, blocks)


@pytest.mark.parametrize(
    ("kind", "changes", "why"),
    [
        ("cuda", {"precision": "fp8"}, "precision fp8: torchao is not installed"),
        ("cuda", {"precision": "fp8_rowwise"}, "precision fp8_rowwise: torchao"),
        ("cuda", {"precision": "llm_int8"}, "precision llm_int8: bitsandbytes is not installed"),
        ("cpu", {"kernels": "fused"}, "kernels fused: .* for cuda, and this is cpu"),
        ("hpu", {}, "precision int8_switchback: torch's int8 product runs on cpu and cuda, and this is hpu"),
    ],
)
def test_what_a_device_or_an_environment_lacks_is_said(
    monkeypatch: pytest.MonkeyPatch, kind: str, changes: dict[str, Any], why: str
) -> None:
    for name in ("torchao.float8", "bitsandbytes.nn"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    model = Model()
    with pytest.raises(Unsupported, match=why):
        converted(model, model.blocks, kind, **changes)


def test_a_converted_encoder_layer_computes_as_before_up_to_its_rounding() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True, norm_first=True)
    x = torch.randn(2, 9, 64)
    expected = layer(x)
    model = nn.Sequential(layer)
    converted(model, [layer])
    found = model(x)
    error = float((found - expected).detach().norm() / expected.detach().norm())
    assert 0 < error < 0.02


@pytest.mark.parametrize("rows", [32, 40])  # a multiple of 16, and none: then the sum over rows is padded
@pytest.mark.parametrize("precision", ["fp8", "fp8_rowwise", "fp8_switchback"])
def test_torchaos_layers_are_float64s_up_to_8_bits(precision: str, rows: int) -> None:
    pytest.importorskip("torchao.float8")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 48))
    weight, bias = (parameter.detach().double() for parameter in model.parameters())
    converted(model, model, "cuda", precision=precision, batch_size=rows)  # as for a GPU; torch has the products on a CPU too
    x, gradient = torch.randn(rows, 64).bfloat16().requires_grad_(), torch.randn(rows, 48).bfloat16()
    out = model(x)
    out.backward(gradient)
    x64, g64 = x.detach().double(), gradient.double()
    for found, expected, limit in (
        (out, x64 @ weight.T + bias, 0.05),
        (x.grad, g64 @ weight, 0.08),  # e5m2 has two bits of mantissa
        (model[0].weight.grad, g64.T @ x64, 0.005 if precision == "fp8_switchback" else 0.08),
    ):
        assert found is not None
        assert float((found.detach().double() - expected).norm() / expected.norm()) < limit
