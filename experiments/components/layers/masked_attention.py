"""transformers' attention by torch's fused kernels, told its mask as they take it. Torch; imported on workers only.

Under autocast the query is in 16 bits, while a mask that the model makes is of booleans or in fp32. The kernels want it in the query's
type. Call by call torch sees to that; a graph of a whole model may hold a mask as it was made, and its kernel then refuses it.

Of what is never padded, as an image is, transformers 5.17 makes a mask too, and asks the device whether it hides anything: the host waits
for the answer. While it is traced or recorded it cannot ask, and keeps a mask that does not fit text which attends to the image. So no
masks are made under the names that are registered here: a model brings those that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Attention = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]


def registered(name: str, compute: Attention) -> str:
    """`name`, by which transformers knows an attention from now on; it makes no masks for it.

    There is no `sdpa` in it: that it refuses where a model declares no support.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, compute)
    AttentionMaskInterface.register(name, lambda *_, **__: None)
    return name


def masked_sdpa(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, **given: Any
) -> tuple[torch.Tensor, None]:
    """transformers' own `sdpa` of query, key, value (batch, heads, tokens, head), the mask, (batch, 1, 1, keys), in their type."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    output: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, in_type_of(query, mask), **given)
    return output


def in_type_of(query: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor | None:
    """What is added to the scores, in the query's type: of booleans 0 where a query sees a key and -inf where it does not."""
    if mask is None or mask.dtype is query.dtype:
        return mask
    if mask.dtype is torch.bool:
        return torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask.logical_not(), float("-inf"))
    return mask.to(query.dtype)
