"""Selective activation checkpointing: what of a layer is kept for the backward pass, while the rest is computed again.

Kept are the outputs of products with weights and of fused attention: they take most of the time and their memory grows with the number of
tokens. Computed again are norms, activations, dropout, casts, and attention that is composed of products and a softmax, whose scores grow
with the square of the sequence's length. Sources: torchtitan's policy `op` (torchtitan/distributed/activation_checkpoint.py and the
operations that its models list; it keeps every second product alone), and Korthikanti et al. 2022, section 5.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

SELECTIVE: Literal["selective"] = "selective"  # a value of `activation_checkpointing`

# namespace::operation, of any version of torch
KEPT = (
    *("aten::mm", "aten::addmm", "aten::_scaled_mm", "aten::_scaled_mm_v2", "aten::_int_mm", "aten::convolution"),
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_fused_attention_overrideable",
    "torch_attn::_varlen_attn",
)


def kept_operations() -> list[torch._ops.OpOverload]:
    """Those of KEPT that this torch has, and that are registered by now."""
    found = []
    for name in KEPT:
        namespace, _, operation = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), operation, None)
        if packet is not None:
            found.append(packet.default)
    return found


def contexts() -> Any:
    """`context_fn` of torch.utils.checkpoint: the contexts of one forward pass of a layer and of its recomputation."""
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    return create_selective_checkpoint_contexts(kept_operations())  # type: ignore[no-untyped-call]
