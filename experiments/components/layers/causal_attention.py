"""Causal attention as the parameter `attention` names it, registered with transformers. Torch; imported on workers only.

transformers' own functions make a mask for a packed batch, or look on the host whether it is one; these know. Each takes query (batch,
heads, tokens, head), key and value (batch, kv heads, tokens, head) and returns (batch, tokens, heads, head) and no scores.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

PREFIX = "sweepbench_"  # of their names at transformers
CUDNN_FIRST = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

Output = tuple[torch.Tensor, None]


def registered(name: str) -> str:
    """The name at transformers of the parameter's value, where it is known from now on. Call it where `why_not` has nothing to say."""
    from transformers import AttentionInterface

    kernel = varlen_kernel() if name == "varlen" else None
    AttentionInterface.register(PREFIX + name, varlen_of(*kernel) if kernel else {"eager": eager, "sdpa": sdpa, "cudnn": cudnn}[name])
    return PREFIX + name


def why_not(name: str, device_kind: str, precision: str) -> str | None:
    """Why this attention cannot be computed on a kind of device in a precision; None if it can."""
    if name in ("cudnn", "varlen") and device_kind != "cuda":
        return f"attention {name}: only on cuda, and this is {device_kind}"
    if name == "varlen" and precision in ("fp32", "tf32"):
        return f"attention varlen: FlashAttention computes in 16 bits, not in {precision}"
    if name == "varlen" and varlen_kernel() is None:
        return f"attention varlen: torch {torch.__version__} has no torch.nn.attention.varlen"
    return None


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


def varlen_of(kernel: Callable[..., Any], settings: Mapping[str, Any]) -> Callable[..., Output]:
    """FlashAttention over documents of any lengths, by torch's varlen_attn with `settings` of its version.

    `starts` (documents + 1,): see Packed; `longest`: tokens of a document, at most.
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


def varlen_kernel() -> tuple[Callable[..., Any], Mapping[str, Any]] | None:
    """torch's varlen_attn, and how this version is told that attention is causal and keys have fewer heads; None where there is none."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    known = inspect.signature(varlen_attn).parameters
    wanted: dict[str, Any] = {"window_size": (-1, 0), "enable_gqa": True, "scale": None}
    settings = {name: value for name, value in wanted.items() if name in known}
    return varlen_attn, settings if "window_size" in known else {**settings, "is_causal": True}


def causal_mask(tokens: int, device: torch.device) -> torch.Tensor:
    """(tokens, tokens), true where a query sees a key: itself and those before it."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()


def document_mask(positions: torch.Tensor) -> torch.Tensor:
    """(batch, 1, tokens, tokens), true where a query sees a key: itself and those before it in its document.

    `positions` (batch, tokens): of each token in its document, from 0.
    """
    document = (positions == 0).cumsum(dim=1)
    return ((document[:, :, None] == document[:, None, :]) & causal_mask(positions.shape[1], positions.device))[:, None]
