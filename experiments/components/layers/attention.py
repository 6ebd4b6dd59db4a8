"""torch's multi-head self-attention taken apart: its projections as linear layers, which can then compute in another precision.

nn.MultiheadAttention multiplies by its weights itself, and calls no module that could be replaced. It also copies queries, keys and values
out of their common product, and once more where torch.compile has the fused kernel; here they are views of that product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class ApartAttention(nn.Module):
    """Self-attention with the parameters, and the results, of an nn.MultiheadAttention: `in_proj`, torch's fused attention, `out_proj`.

    It is called as that is, without masks. The attributes that nn.TransformerEncoderLayer reads keep that from its own fast path.
    """

    in_proj_bias = None
    _qkv_same_embed_dim = True

    def __init__(self, old: nn.MultiheadAttention) -> None:
        """Raises ValueError for one with keys or values of another width, or with biases added to them."""
        super().__init__()
        if not old._qkv_same_embed_dim or old.bias_k is not None or old.add_zero_attn:
            raise ValueError("only plain self-attention can be taken apart")
        self.num_heads, self.dropout, self.batch_first = old.num_heads, old.dropout, old.batch_first
        self.in_proj = _linear(old.in_proj_weight, old.in_proj_bias)
        self.out_proj = _linear(old.out_proj.weight, old.out_proj.bias)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, None]:
        """(output, None) of x = query = key = value: (tokens, batch, width), with `batch_first` (batch, tokens, width)."""
        if key is not query or value is not query or key_padding_mask is not None or attn_mask is not None or need_weights or is_causal:
            raise NotImplementedError("attention taken apart: of one tensor, without masks and without weights")
        first, second, width = query.shape
        # (first, second, 3, heads, width of a head) -> three of (batch, heads, tokens, width of a head)
        heads = self.in_proj(query).view(first, second, 3, self.num_heads, width // self.num_heads)
        order = (2, 0, 3, 1, 4) if self.batch_first else (2, 1, 3, 0, 4)
        q, k, v = heads.permute(order).unbind(0)
        out = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        return self.out_proj(out.permute((0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3)).reshape(first, second, width)), None


def _linear(weight: Any, bias: Any) -> nn.Linear:
    """A linear layer of these very parameters; `bias` may be None."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = weight
    if bias is not None:
        layer.bias = bias
    return layer
