"""Multi-head attention taken apart: the values and gradients of torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.components.layers.attention import ApartAttention


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_it_has_the_values_and_gradients_of_torchs_attention(batch_first: bool, bias: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(32, 4, batch_first=batch_first, bias=bias, dtype=torch.float64)
    if bias:
        nn.init.normal_(theirs.in_proj_bias)
        nn.init.normal_(theirs.out_proj.bias)
    ours = ApartAttention(theirs)
    assert {id(parameter) for parameter in ours.parameters()} == {id(parameter) for parameter in theirs.parameters()}
    x = torch.randn(3, 7, 32, dtype=torch.float64)
    results = []
    for attention in (theirs, ours):
        inputs = x.clone().requires_grad_()
        out, weights = attention(inputs, inputs, inputs, need_weights=False)
        assert weights is None
        gradients = torch.autograd.grad(out.square().sum(), [inputs, *attention.parameters()])
        results.append([out, *gradients])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the tensors that are copied."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function in (torch.ops.aten.clone.default, torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("batch_first", [False, True])
def test_queries_keys_and_values_are_not_copied(batch_first: bool) -> None:
    theirs = nn.MultiheadAttention(32, 4, batch_first=batch_first)
    x = torch.randn(3, 7, 32)
    counts = []
    for attention in (theirs, ApartAttention(theirs)):
        with torch.no_grad(), Copies() as copies:
            attention(x, x, x, need_weights=False)
        counts.append(copies.count)
    assert counts[1] == 0 < counts[0]


def test_dropout_is_of_training_alone() -> None:
    torch.manual_seed(0)
    ours = ApartAttention(nn.MultiheadAttention(32, 4, dropout=0.5))
    x = torch.randn(3, 7, 32)

    def call() -> torch.Tensor:
        out: torch.Tensor = ours(x, x, x, need_weights=False)[0]
        return out

    assert not torch.equal(call(), call())
    ours.eval()
    assert torch.equal(call(), call())


def test_inside_torchs_encoder_layer_it_is_called_in_evaluation_too() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True).eval()
    x = torch.randn(3, 7, 32)
    with torch.no_grad():
        expected = layer(x)
        layer.self_attn = ApartAttention(layer.self_attn)  # type: ignore[assignment]
        torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("more", [{"need_weights": True}, {"is_causal": True}, {"attn_mask": torch.zeros(7, 7)}])
def test_what_it_does_not_compute_is_refused(more: dict[str, Any]) -> None:
    ours, x = ApartAttention(nn.MultiheadAttention(32, 4)), torch.randn(7, 3, 32)
    with pytest.raises(NotImplementedError, match="of one tensor, without masks"):
        ours(x, x, x, **{"need_weights": False, **more})
    with pytest.raises(NotImplementedError):
        ours(x, x.clone(), x, need_weights=False)
    with pytest.raises(ValueError, match="only plain self-attention"):
        ApartAttention(nn.MultiheadAttention(32, 4, kdim=16))
