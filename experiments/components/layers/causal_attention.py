"""Causal attention as the parameter `attention` names it, registered with transformers. Torch; imported on workers only.

transformers' own functions make a mask for a packed batch, or look on the host whether it is one; these know. Each takes query (batch,
heads, tokens, head), key and value (batch, kv heads, tokens, head) and returns (batch, tokens, heads, head) and no scores.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.components.layers.document_attention import Output, same_document, varlen_kernel, varlen_of, why_not_varlen

PREFIX = "sweepbench_causal_"  # of their names at transformers
CUDNN_FIRST = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def registered(name: str) -> str:
    """The name at transformers of the parameter's value, where it is known from now on. Call it where `why_not` has nothing to say."""
    from transformers import AttentionInterface

    kernel = varlen_kernel() if name == "varlen" else None
    AttentionInterface.register(PREFIX + name, varlen_of(*kernel) if kernel else {"eager": eager, "sdpa": sdpa, "cudnn": cudnn}[name])
    return PREFIX + name


def why_not(name: str, device_kind: str, precision: str) -> str | None:
    """Why this attention cannot be computed on a kind of device in a precision; None if it can."""
    if name == "cudnn" and device_kind != "cuda":
        return f"attention cudnn: only on cuda, and this is {device_kind}"
    return why_not_varlen(device_kind, precision) if name == "varlen" else None


def eager(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, **given: Any
) -> Output:
    """Matrix products, and a softmax in fp32. `mask`: (batch or 1, 1, queries, keys), true where a query sees a key; None: causal."""
    groups = query.shape[1] // key.shape[1]
    scores = query @ key.repeat_interleave(groups, dim=1).transpose(2, 3) * given["scaling"]
    seen = causal_mask(query.shape[2], query.device) if mask is None else mask
    shares = scores.float().masked_fill(~seen, float("-inf")).softmax(dim=-1).to(value.dtype)
    return (shares @ value.repeat_interleave(groups, dim=1)).transpose(1, 2).contiguous(), None


def sdpa(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, **given: Any
) -> Output:
    """scaled_dot_product_attention; `mask` as in `eager`. Fused kernels take no mask with fewer heads of keys, so those are repeated."""
    scale, groups = given["scaling"], query.shape[1] // key.shape[1]
    if mask is None:
        output = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=groups > 1)
    elif query.shape[2] == 1:  # the queries that share a key become queries of one head: nothing is repeated
        shared = query.reshape(len(query), key.shape[1], groups, query.shape[3])
        output = functional.scaled_dot_product_attention(shared, key, value, attn_mask=mask, scale=scale).reshape(query.shape)
    else:
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
        output = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    return output.transpose(1, 2).contiguous(), None


def cudnn(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, **given: Any
) -> Output:
    """As `sdpa`, by cuDNN's kernel where it takes the tensors."""
    with sdpa_kernel(CUDNN_FIRST, set_priority=True):
        return sdpa(module, query, key, value, mask, **given)


def causal_mask(tokens: int, device: torch.device) -> torch.Tensor:
    """(tokens, tokens), true where a query sees a key: itself and those before it."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()


def document_mask(positions: torch.Tensor) -> torch.Tensor:
    """(batch, 1, tokens, tokens), true where a query sees a key: itself and those before it in its document.

    `positions` (batch, tokens): of each token in its document, from 0.
    """
    return (same_document(positions) & causal_mask(positions.shape[1], positions.device))[:, None]
