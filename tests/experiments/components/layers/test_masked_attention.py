"""The mask in the query's type: the same attention, and no kernel is given another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from experiments.components.layers.masked_attention import in_type_of, masked_sdpa, registered

SEEN = torch.tensor([[True, True, False], [True, False, False]])[:, None, None]  # (batch, 1, 1, keys)
LEAST = torch.finfo(torch.float32).min


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", [SEEN, torch.zeros(2, 1, 1, 3).masked_fill(~SEEN, LEAST)], ids=["booleans", "added"])
def test_a_mask_of_any_type_becomes_one_that_is_added_in_the_querys(kind: torch.dtype, mask: torch.Tensor) -> None:
    found = in_type_of(torch.zeros(1, dtype=kind), mask)
    assert found is not None and found.dtype is kind and found.shape == mask.shape
    assert found[0, 0, 0, :2].tolist() == [0, 0] and found[1, 0, 0, 0] == 0
    hidden = LEAST if kind is torch.float32 and mask.dtype is torch.float32 else float("-inf")
    assert found[~SEEN].tolist() == [hidden] * 3


def test_none_stays_none_and_what_fits_is_not_copied() -> None:
    query = torch.zeros(1, dtype=torch.bfloat16)
    fits = torch.zeros(2, 1, 1, 3, dtype=torch.bfloat16)
    assert in_type_of(query, None) is None and in_type_of(query, fits) is fits


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_attention_is_that_of_the_booleans(kind: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    states = [torch.randn(2, 2, 3, 8, generator=draw).to(kind) for _ in range(3)]
    expected = functional.scaled_dot_product_attention(*states, attn_mask=SEEN).transpose(1, 2)
    given: list[Any] = []
    kernel = functional.scaled_dot_product_attention
    monkeypatch.setattr(functional, "scaled_dot_product_attention", lambda *at, **named: given.append(named) or kernel(*at, **named))
    with torch.autocast("cpu", torch.bfloat16):
        output, scores = masked_sdpa(torch.nn.Module(), *states, SEEN, is_causal=False)
    assert scores is None and given[0]["attn_mask"].dtype is kind and not given[0]["is_causal"]
    torch.testing.assert_close(output.to(kind), expected, rtol=2e-2, atol=2e-2)


def test_transformers_makes_no_mask_of_its_own_and_keeps_a_told_one() -> None:
    """As it would of an image's tokens, asking the device or, traced, for other queries than text has."""
    from transformers import BertConfig
    from transformers.masking_utils import create_bidirectional_mask

    name = registered("sweepbench_test", masked_sdpa)
    config = BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, attn_implementation=name)
    states, padded = torch.zeros(2, 3, 8), SEEN[:, 0, 0].long()
    assert create_bidirectional_mask(config=config, inputs_embeds=states, attention_mask=padded) is None
    assert create_bidirectional_mask(config=config, inputs_embeds=states, attention_mask=SEEN) is SEEN
