"""FLAVA's attention by torch's fused kernels: transformers' FLAVA has eager attention alone. Torch and transformers; used on workers only.

Eager attention keeps two copies of the scores for the backward pass, one of them in fp32: of 512 tokens of 2.7b nearly as much as all else.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from experiments.components.layers.masked_attention import in_type_of

NAME = "sweepbench_padding_mask"  # at transformers, under which it makes masks


class FusedSelfAttention(nn.Module):
    """A FlavaSelfAttention with the parameters, their names and the results of the one that it replaces."""

    def __init__(self, old: Any) -> None:
        super().__init__()
        self.query, self.key, self.value = old.query, old.key, old.value
        self.heads: int = old.num_attention_heads
        self.dropout: float = old.dropout.p

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, output_attentions: bool = False
    ) -> tuple[torch.Tensor]:
        """(output,) of hidden states (batch, tokens, width); the mask, of booleans (batch, 1, 1, keys), is true where a key is seen."""
        if output_attentions:
            raise NotImplementedError("fused attention: without weights")
        batch, tokens, width = hidden_states.shape
        shape = batch, tokens, self.heads, width // self.heads
        q, k, v = (linear(hidden_states).view(shape).transpose(1, 2) for linear in (self.query, self.key, self.value))
        dropout = self.dropout if self.training else 0.0
        output = functional.scaled_dot_product_attention(q, k, v, attn_mask=in_type_of(q, attention_mask), dropout_p=dropout)
        return (output.transpose(1, 2).reshape(batch, tokens, width),)


def fuse_attention(model: Any) -> None:
    """Give each layer of a FlavaForPreTraining fused attention, and its towers the masks for it."""
    from transformers import AttentionMaskInterface

    AttentionMaskInterface.register(NAME, padding_mask)
    for tower in (model.flava.image_model, model.flava.text_model, model.flava.multimodal_model):
        tower.config._attn_implementation = NAME
        for layer in tower.encoder.layer:
            layer.attention.attention = FusedSelfAttention(layer.attention.attention)


def padding_mask(attention_mask: torch.Tensor | None = None, **_: Any) -> torch.Tensor | None:
    """A mask (batch, 1, 1, keys) of booleans from one (batch, keys), None without.

    transformers' own looks whether it hides anything, for which the host waits for the device, and has a row for each query.
    """
    return None if attention_mask is None else attention_mask[:, None, None, :].bool()
