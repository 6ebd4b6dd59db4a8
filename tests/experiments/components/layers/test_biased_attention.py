"""T5's attention by fused kernels: what transformers computes eagerly, with gradients for the bias, in the query's type."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional

from experiments.components.layers.biased_attention import biased_sdpa, registered
from experiments.workloads import t5


@pytest.fixture(autouse=True)
def kernels_as_before() -> Iterator[None]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    yield
    torch.backends.cuda.enable_cudnn_sdp(before)


def learnt(attention: Any, *, padded: bool, kind: torch.dtype = torch.float64) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Loss, all gradients, and those of the encoder's bias, of three documents with their summaries."""
    torch.manual_seed(0)
    model: Any = t5.make(t5.Parameters(attention=attention)).to(kind).train()
    draw = torch.Generator().manual_seed(1)
    documents, summaries = torch.randint(5, 4096, (3, 40), generator=draw), torch.randint(5, 4096, (3, 12), generator=draw)
    seen = torch.ones_like(documents)
    if padded:
        seen[1, 25:], seen[2, 7:], summaries[1, 5:] = 0, 0, -100
    model.config.pad_token_id = 0
    loss = model(input_ids=documents, attention_mask=seen, labels=summaries).loss
    loss.backward()
    bias = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.grad
    return loss.item(), torch.cat([weight.grad.flatten() for weight in model.parameters()]), bias


@pytest.mark.parametrize("padded", [True, False])
def test_loss_and_gradients_are_those_of_plain_attention(padded: bool) -> None:
    (expected, gradients, bias), (loss, others, of_bias) = (learnt(attention, padded=padded) for attention in ("eager", "sdpa"))
    assert loss == pytest.approx(expected, rel=1e-12) and expected == pytest.approx(8.9, abs=0.2)
    assert float((others - gradients).norm() / gradients.norm()) < 1e-12
    assert float(bias.norm()) > 0 and float((of_bias - bias).norm() / bias.norm()) < 1e-12


MODULES = {"encoder": (False, False), "decoder": (True, True), "across": (True, False)}


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_the_kernel_gets_one_mask_in_the_querys_type(name: str, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 bits, beside a bias in fp32 that lies with its heads last, as T5 makes it. A summary attends to its document without bias."""
    is_decoder, is_causal = MODULES[name]
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 2, 4, 8, generator=draw).bfloat16() for _ in range(3))
    bias = torch.randn(1, 4, 4, 2, generator=draw).permute(0, 3, 1, 2)
    mask = (torch.ones(4, 4, dtype=torch.bool).tril() if is_causal else torch.tensor([True, True, True, False]).expand(4, 4)).expand(
        2, 1, 4, 4
    )
    given: list[torch.Tensor | None] = []
    kernel = functional.scaled_dot_product_attention

    def listen(query: Any, key: Any, value: Any, added: torch.Tensor | None, **named: Any) -> torch.Tensor:
        given.append(added)
        return kernel(query, key, value, added, **named)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", listen)
    module = SimpleNamespace(is_decoder=is_decoder, is_causal=is_causal)
    output, scores = biased_sdpa(
        module, query, key, value, mask if masked else None, position_bias=bias, dropout=0.0, scaling=1.0, other="ignored"
    )
    added = given[0]
    if name == "across":
        assert added is (mask if masked else None)
    else:
        assert added is not None and added.dtype is torch.bfloat16 and added.is_contiguous()
        assert added.shape == (2 if masked else 1, 2, 4, 4)
    wanted = query.float() @ key.float().transpose(2, 3) + (0 if name == "across" else bias)
    if masked or is_causal:
        wanted = wanted.masked_fill(~mask, float("-inf"))
    expected = (wanted.softmax(dim=-1) @ value.float()).transpose(1, 2)
    assert scores is None and output.shape == (2, 4, 2, 8)
    torch.testing.assert_close(output.float(), expected, rtol=3e-2, atol=3e-2)


def test_a_token_that_is_written_alone_sees_all_before_it() -> None:
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, tokens, 8, generator=draw) for tokens in (1, 5, 5))
    bias = torch.randn(1, 2, 1, 5, generator=draw)
    output, _ = biased_sdpa(
        SimpleNamespace(is_decoder=True, is_causal=True), query, key, value, None, position_bias=bias, dropout=0.0, scaling=1.0
    )
    expected = (query @ key.transpose(2, 3) + bias).softmax(dim=-1) @ value
    torch.testing.assert_close(output, expected.transpose(1, 2))


def test_cudnns_kernel_gives_a_bias_no_gradient_and_serves_inference_alone() -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    registered(trained=False)
    assert torch.backends.cuda.cudnn_sdp_enabled()
    registered(trained=True)
    assert not torch.backends.cuda.cudnn_sdp_enabled()
