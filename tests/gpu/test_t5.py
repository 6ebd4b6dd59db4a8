"""What only a GPU can show of T5's fused attention: a kernel takes bias and mask, and gives the bias the gradient that it has eagerly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.workloads import t5

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def kernels_as_before() -> Iterator[None]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    yield
    torch.backends.cuda.enable_cudnn_sdp(before)


def learnt(
    attention: Any, *, autocast: bool, padded: bool, backends: list[SDPBackend] | None = None
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Loss, all gradients, and those of the encoder's bias."""
    torch.manual_seed(0)
    model: Any = t5.make(t5.Parameters(attention=attention)).cuda().train()
    draw = torch.Generator().manual_seed(1)
    documents, summaries = torch.randint(5, 4096, (4, 256), generator=draw), torch.randint(5, 4096, (4, 64), generator=draw)
    seen = torch.ones_like(documents)
    if padded:
        seen[1, 100:], seen[2, 7:], summaries[1, 30:] = 0, 0, -100
    model.config.pad_token_id = 0
    kernels = sdpa_kernel(backends) if backends else torch.enable_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast), kernels:
        loss = model(input_ids=documents.cuda(), attention_mask=seen.cuda(), labels=summaries.cuda()).loss
    loss.backward()
    bias = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.grad
    return loss.item(), torch.cat([weight.grad.flatten() for weight in model.parameters()]), bias


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(("autocast", "loss_within", "gradients_within"), [(False, 1e-5, 1e-3), (True, 2e-3, 5e-2)])
def test_the_memory_efficient_kernel_takes_it_all(padded: bool, autocast: bool, loss_within: float, gradients_within: float) -> None:
    """No other is allowed: one that had to be composed of products would be refused."""
    expected, gradients, bias = learnt("eager", autocast=False, padded=padded)
    loss, others, of_bias = learnt("sdpa", autocast=autocast, padded=padded, backends=[SDPBackend.EFFICIENT_ATTENTION])
    assert loss == pytest.approx(expected, rel=loss_within)
    assert float((others - gradients).norm() / gradients.norm()) < gradients_within
    assert float((of_bias - bias).norm() / bias.norm()) < 2 * gradients_within


def test_of_all_kernels_one_is_chosen_that_gives_the_bias_its_gradient() -> None:
    _, _, bias = learnt("eager", autocast=True, padded=True)
    _, _, of_bias = learnt("sdpa", autocast=True, padded=True)
    assert float((of_bias - bias).norm() / bias.norm()) < 0.1
