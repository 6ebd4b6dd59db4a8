"""Attention within documents, both ways: the mask, what is added to scores, and what varlen is told."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from experiments.components.layers.document_attention import (
    added,
    registered_both_ways,
    same_document,
    varlen_kernel,
    varlen_of,
    why_not_varlen,
)

STARTS = torch.tensor([0, 3, 8, 8, 9], dtype=torch.int32)  # the third has no token
POSITIONS = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 0]])
DOCUMENTS = ((0, 3), (3, 8), (8, 9))


def test_tokens_see_all_of_their_own_document() -> None:
    seen = same_document(POSITIONS)
    assert seen.shape == (1, 9, 9)
    expected = torch.zeros(9, 9, dtype=torch.bool)
    for begin, end in DOCUMENTS:
        expected[begin:end, begin:end] = True
    assert torch.equal(seen[0], expected)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_added_leaves_nothing_of_the_others(kind: torch.dtype) -> None:
    mask = added(same_document(POSITIONS), kind)
    shares = (torch.full((1, 9, 9), 5.0, dtype=kind) + mask).float().softmax(-1)
    assert mask.dtype is kind and (shares[~same_document(POSITIONS)] == 0).all()
    assert shares[0, 0, :3].tolist() == pytest.approx([1 / 3] * 3)


def documents_of(causal: bool, states: list[torch.Tensor]) -> torch.Tensor:
    """Document by document: (1, tokens, heads, head)."""
    parts = [[each[:, :, begin:end] for each in states] for begin, end in DOCUMENTS]
    return torch.cat([scaled_dot_product_attention(*part, is_causal=causal) for part in parts], dim=2).transpose(1, 2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("windows", [False, True])
def test_varlen_is_told_which_way_a_token_looks(causal: bool, windows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch 2.10's signature, and by that of later versions."""

    def by_document(query: Any, key: Any, value: Any, starts: Any, causal: bool) -> Any:
        return documents_of(causal, [each.transpose(0, 1)[None] for each in (query, key, value)])[0]

    def ten(query: Any, key: Any, value: Any, starts: Any, ends: Any, most: int, longest: int, is_causal: bool = False) -> Any:
        return by_document(query, key, value, starts, is_causal)

    def later(*given: Any, scale: Any = None, window_size: Any = (-1, -1), enable_gqa: bool = False) -> Any:
        assert enable_gqa and scale == 8**-0.5 and window_size in ((-1, -1), (-1, 0))
        return by_document(*given[:4], window_size == (-1, 0))

    made = ModuleType("torch.nn.attention.varlen")
    made.varlen_attn = later if windows else ten  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", made)
    kernel = varlen_kernel(causal=causal)
    assert kernel is not None
    draw = torch.Generator().manual_seed(0)
    states = [torch.randn(1, 2, 9, 8, generator=draw) for _ in range(3)]
    output, scores = varlen_of(*kernel)(torch.nn.Module(), *states, None, scaling=8**-0.5, starts=STARTS, longest=5)
    assert scores is None
    torch.testing.assert_close(output, documents_of(causal, states))


def test_transformers_knows_it_and_makes_no_mask_for_it() -> None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    name = registered_both_ways()
    assert ALL_ATTENTION_FUNCTIONS[name].__name__ == "varlen" and name not in ALL_MASK_ATTENTION_FUNCTIONS


@pytest.mark.parametrize(
    ("device", "precision", "why"),
    [
        ("cuda", "fp16", None),
        ("cuda", "fp8", None),
        ("cpu", "bf16", "attention varlen: only on cuda, and this is cpu"),
        ("cuda", "tf32", "attention varlen: FlashAttention computes in 16 bits, not in tf32"),
    ],
)
def test_where_varlen_cannot_be(device: str, precision: str, why: str | None) -> None:
    assert why_not_varlen(device, precision) == why


def test_an_older_torch_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", None)
    assert varlen_kernel() is None
    assert "has no torch.nn.attention.varlen" in str(why_not_varlen("cuda", "bf16"))
