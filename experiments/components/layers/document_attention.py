"""Attention within documents that follow one another: a mask that keeps them apart, or torch's kernel for such documents, which needs none.

Torch; imported on workers only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

BOTH_WAYS = "sweepbench_varlen_both_ways"  # the name at transformers of varlen where a token sees all of its document

Output = tuple[torch.Tensor, None]


def same_document(positions: torch.Tensor) -> torch.Tensor:
    """(batch, tokens, tokens), true for two tokens of one document. `positions` (batch, tokens): of each token in its document, from 0."""
    document = (positions == 0).cumsum(dim=1)
    return document[:, :, None] == document[:, None, :]


def added(seen: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """What is added to scores so that only keys that are `seen` count: 0, elsewhere the least number of the type `kind`."""
    return torch.zeros(seen.shape, dtype=kind, device=seen.device).masked_fill(~seen, torch.finfo(kind).min)


def why_not_varlen(device_kind: str, precision: str) -> str | None:
    """Why `attention: varlen` cannot be computed on a kind of device in a precision; None if it can."""
    if device_kind != "cuda":
        return f"attention varlen: only on cuda, and this is {device_kind}"
    if precision in ("fp32", "tf32"):
        return f"attention varlen: FlashAttention computes in 16 bits, not in {precision}"
    if varlen_kernel() is None:
        return f"attention varlen: torch {torch.__version__} has no torch.nn.attention.varlen"
    return None


def varlen_of(kernel: Callable[..., Any], settings: Mapping[str, Any]) -> Callable[..., Output]:
    """FlashAttention over documents of any lengths, by torch's varlen_attn with `settings` of its version, as transformers calls it.

    query (batch, heads, tokens, head), key and value (batch, kv heads, tokens, head) -> (batch, tokens, heads, head) and no scores. The
    batch's sequences follow one another. `starts` (documents + 1,): where each document begins, and the last one ends; they may be empty.
    `longest`: tokens of a document, at most.
    """

    def varlen(
        module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, **given: Any
    ) -> Output:
        starts, longest = given["starts"], given["longest"]
        # norms of queries and keys may have left them in fp32
        query_, key_, value_ = (states.transpose(1, 2).flatten(0, 1).to(value.dtype) for states in (query, key, value))
        scale = {"scale": given["scaling"]} if "scale" in settings else {}  # else 1 / sqrt(head), which it is
        output = kernel(query_, key_, value_, starts, starts, longest, longest, **{**settings, **scale})
        return output.view(query.shape[0], query.shape[2], *output.shape[1:]), None

    return varlen


def varlen_kernel(*, causal: bool = True) -> tuple[Callable[..., Any], Mapping[str, Any]] | None:
    """torch's varlen_attn, and how this version is told whether attention is causal and that keys may have fewer heads; None where there is
    none."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    known = inspect.signature(varlen_attn).parameters
    wanted: dict[str, Any] = {"window_size": (-1, 0) if causal else (-1, -1), "enable_gqa": True, "scale": None}
    settings = {name: value for name, value in wanted.items() if name in known}
    return varlen_attn, settings if "window_size" in known else {**settings, "is_causal": causal}


def registered_both_ways() -> str:
    """The name at transformers of varlen in which a token sees all of its document. Call it where `why_not_varlen` has nothing to say."""
    from transformers import AttentionInterface

    kernel = varlen_kernel(causal=False)
    assert kernel is not None
    AttentionInterface.register(BOTH_WAYS, varlen_of(*kernel))
    return BOTH_WAYS
