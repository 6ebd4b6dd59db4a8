"""Attention of language models: each way against the definition in float64, what is registered, what a device cannot do."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from experiments.components.layers import causal_attention as attention
from experiments.components.layers.causal_attention import cudnn, document_mask, eager, registered, sdpa, why_not
from experiments.components.layers.document_attention import varlen_kernel, varlen_of

BATCH, HEADS, KV_HEADS, TOKENS, HEAD = 2, 4, 2, 11, 8
POSITIONS = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 1], list(range(11))])
STARTS = torch.tensor([0, 3, 8, 9, 11, 22, 22, 22], dtype=torch.int32)
MODULE = torch.nn.Module()


def drawn(queries: int = TOKENS) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    shapes = ((BATCH, HEADS, queries, HEAD), (BATCH, KV_HEADS, TOKENS, HEAD), (BATCH, KV_HEADS, TOKENS, HEAD))
    return [torch.randn(shape, generator=draw).requires_grad_() for shape in shapes]


def exact(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, seen: Any, scale: float) -> torch.Tensor:
    """Token by token, as the definition says; `seen(batch, query, key)`. (batch, tokens, heads, head) in float64."""
    output = torch.zeros(BATCH, query.shape[2], HEADS, HEAD, dtype=torch.float64)
    for batch in range(BATCH):
        for head in range(HEADS):
            q, k, v = query[batch, head].double(), key[batch, head // 2].double(), value[batch, head // 2].double()
            for at in range(query.shape[2]):
                places = [place for place in range(TOKENS) if seen(batch, at, place)]
                output[batch, at, head] = ((k[places] @ q[at]) * scale).softmax(0) @ v[places]
    return output


def of_document(batch: int, query: int, key: int) -> bool:
    position = int(POSITIONS[batch, query])
    return query - position <= key <= query


def causal(batch: int, query: int, key: int) -> bool:
    return key <= query


@pytest.mark.parametrize("one", [eager, sdpa])
@pytest.mark.parametrize("block", [False, True])
def test_a_token_sees_what_it_should(one: Any, block: bool) -> None:
    states = drawn()
    output, scores = one(MODULE, *states, document_mask(POSITIONS) if block else None, scaling=0.3)
    assert scores is None and output.is_contiguous()
    torch.testing.assert_close(output.double(), exact(*states, of_document if block else causal, 0.3), rtol=1e-4, atol=1e-6)


def test_one_query_sees_the_places_that_are_written() -> None:
    states = drawn(queries=1)
    mask = (torch.arange(TOKENS) <= 6)[None, None, None]
    for one in (eager, sdpa):
        output, _ = one(MODULE, *states, mask, scaling=0.3)
        torch.testing.assert_close(output.double(), exact(*states, lambda batch, query, key: key <= 6, 0.3), rtol=1e-4, atol=1e-6)


def by_document(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, starts: torch.Tensor, *_: Any, **given: Any) -> torch.Tensor:
    """What varlen_attn computes: (tokens, heads, head), document by document."""
    parts = []
    for begin, end in zip(starts.tolist(), starts.tolist()[1:], strict=False):
        one = [each[begin:end].transpose(0, 1)[None] for each in (query, key, value)]
        if end > begin:
            output = torch.nn.functional.scaled_dot_product_attention(*one, is_causal=True, scale=given["scale"], enable_gqa=True)
            parts.append(output[0].transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize("signature", ["2.10", "2.11", "2.13"])
def test_varlen_hands_over_documents_one_after_the_other(signature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[dict[str, Any]] = []

    def ten(query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int, is_causal: bool = False) -> Any:
        called.append({"is_causal": is_causal, "most": (max_q, max_k)})
        return by_document(query, key, value, cu_seq_q, scale=None)

    def eleven(query: Any, key: Any, value: Any, q: Any, k: Any, max_q: int, max_k: int, *, scale: Any = None, window_size: Any = 0) -> Any:
        called.append({"scale": scale, "window_size": window_size, "most": (max_q, max_k)})
        return by_document(query, key, value, q, scale=scale)

    def newest(*given: Any, scale: Any = None, window_size: Any = 0, enable_gqa: bool = False) -> Any:
        called.append({"scale": scale, "window_size": window_size, "enable_gqa": enable_gqa, "most": given[5:]})
        return by_document(*given, scale=scale)

    made = ModuleType("torch.nn.attention.varlen")
    made.varlen_attn = {"2.10": ten, "2.11": eleven, "2.13": newest}[signature]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", made)
    kernel = varlen_kernel()
    assert kernel is not None
    states, scale = drawn(), HEAD**-0.5
    states = [states[0].double(), states[1].double(), states[2]]  # norms leave queries and keys in another type
    output, _ = varlen_of(*kernel)(MODULE, *states, None, scaling=scale, starts=STARTS, longest=TOKENS)
    torch.testing.assert_close(output.double(), exact(*states, of_document, scale), rtol=1e-4, atol=1e-6)
    wanted: dict[str, Any] = {
        "2.10": {"is_causal": True},
        "2.11": {"scale": scale, "window_size": (-1, 0)},
        "2.13": {"scale": scale, "window_size": (-1, 0), "enable_gqa": True},
    }
    assert called == [wanted[signature] | {"most": (TOKENS, TOKENS)}]


def test_names_are_known_to_transformers() -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for name in ("eager", "sdpa", "cudnn"):
        assert ALL_ATTENTION_FUNCTIONS[registered(name)] is getattr(attention, name)
    assert ALL_ATTENTION_FUNCTIONS[registered("varlen")].__name__ == "varlen"


@pytest.mark.parametrize("one", [sdpa, cudnn])
def test_it_compiles_whole(one: Any) -> None:
    states = drawn()
    compiled = torch.compile(lambda *given: one(MODULE, *given, None, scaling=0.3)[0], backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*states), one(MODULE, *states, None, scaling=0.3)[0])


def test_varlen_compiles_whole() -> None:
    one = varlen_of(lambda query, *_, **__: query * 1.0, {"window_size": (-1, 0), "scale": None})
    states, told = drawn(), {"scaling": 0.3, "starts": STARTS, "longest": TOKENS}
    compiled = torch.compile(lambda *given: one(MODULE, *given, None, **told)[0], backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*states), states[0].transpose(1, 2))


@pytest.mark.parametrize(
    ("name", "device", "precision", "why"),
    [
        ("sdpa", "cpu", "fp32", None),
        ("eager", "hpu", "bf16", None),
        ("cudnn", "cuda", "bf16", None),
        ("cudnn", "cpu", "bf16", "attention cudnn: only on cuda, and this is cpu"),
        ("varlen", "cpu", "bf16", "attention varlen: only on cuda, and this is cpu"),
        ("varlen", "cuda", "tf32", "attention varlen: FlashAttention computes in 16 bits, not in tf32"),
        ("varlen", "cuda", "fp16", None),
    ],
)
def test_what_a_device_cannot_do(name: str, device: str, precision: str, why: str | None) -> None:
    assert why_not(name, device, precision) == why
