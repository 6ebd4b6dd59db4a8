"""What only a GPU can show of FLAVA's fused attention: its kernels with 2.7b's heads of 88 and odd numbers of tokens, also compiled."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from experiments.components.layers.flava_attention import FusedSelfAttention, padding_mask

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # compile in this process: none is left behind
WIDTH, HEADS = 1408, 16
# (batch, tokens, whether some are padding): text alone, a pair's image and text, both together
SHAPES = [(4, 512, False), (8, 197, False), (8, 77, True), (4, 275, True)]


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("compiled", [False, True])
def test_fused_attention_is_the_eager_one_at_flavas_shapes(compiled: bool) -> None:
    from transformers.models.flava.configuration_flava import FlavaTextConfig
    from transformers.models.flava.modeling_flava import FlavaSelfAttention

    torch.manual_seed(0)
    stock = FlavaSelfAttention(FlavaTextConfig(hidden_size=WIDTH, num_attention_heads=HEADS)).cuda()
    fused: nn.Module = FusedSelfAttention(stock)
    if compiled:
        torch.compiler.reset()
        fused.compile(fullgraph=True)
    for batch, tokens, padded in SHAPES:
        states = torch.randn(batch, tokens, WIDTH, device="cuda", requires_grad=True)
        exact = states.detach().clone().requires_grad_()
        real = torch.ones(batch, tokens, dtype=torch.long, device="cuda")
        if padded:
            real[1:, tokens // 2 :] = 0
        added = torch.zeros(batch, 1, 1, tokens, device="cuda").masked_fill(real[:, None, None] == 0, torch.finfo(torch.float32).min)
        (wanted,) = stock(exact, added)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            (found,) = fused(states, padding_mask(real) if padded else None)
        direction = torch.randn_like(wanted)
        wanted.backward(direction)
        found.backward(direction.to(found.dtype))
        assert states.grad is not None and exact.grad is not None
        assert error(found, wanted) < 0.02 and error(states.grad, exact.grad) < 0.03, (batch, tokens)
