"""transformers' attention by torch's fused kernels, told its mask as they take it. Torch; imported on workers only.

Under autocast the query is in 16 bits, while a mask that the model makes is of booleans or in fp32. The kernels want it in the query's
type. Call by call torch sees to that; a graph of a whole model may hold a mask as it was made, and its kernel then refuses it.

A model that is traced cannot look whether a mask hides anything, so transformers then makes one where it else makes none. Its version 5.17
makes that of the image's tokens square, also for text that attends to the image.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "sweepbench_masked_attention"  # at transformers, which refuses any `sdpa` where a model declares no support


def registered() -> str:
    """The name at transformers of `masked_sdpa`, which it knows from now on; masks are made for it as for `sdpa`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, masked_sdpa)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def masked_sdpa(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, **given: Any
) -> tuple[torch.Tensor, None]:
    """transformers' own `sdpa` of query, key, value (batch, heads, tokens, head), the mask, (batch, 1, tokens, keys), fitted to them."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    output: tuple[torch.Tensor, None] = sdpa_attention_forward(
        module, query, key, value, in_type_of(query, for_queries(query, mask)), **given
    )
    return output


def for_queries(query: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor | None:
    """A mask that was made for another number of queries, for any number: it hides padding, so it is the same for each query."""
    return mask if mask is None or mask.shape[-2] in (1, query.shape[-2]) else mask[..., :1, :]


def in_type_of(query: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor | None:
    """What is added to the scores, in the query's type: of booleans 0 where a query sees a key and -inf where it does not."""
    if mask is None or mask.dtype is query.dtype:
        return mask
    if mask.dtype is torch.bool:
        return torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask.logical_not(), float("-inf"))
    return mask.to(query.dtype)
