"""T5's attention by torch's fused kernels: scores with a learnt bias for each head and distance. Torch; imported on workers only.

transformers' own `sdpa` adds bias and mask in the bias's type, which under autocast is fp32, twice the bytes of a tensor as large as all
scores; adds a bias of zeros where a summary attends to its document; and in version 5.17 leaves the bias with its heads last in memory,
where fused kernels want its keys. Of the fused kernels on CUDA, FlashAttention takes no bias, and cuDNN's, which torch prefers on Hopper,
gives it no gradient (aten::_scaled_dot_product_cudnn_attention_backward returns those of query, key and value): the memory-efficient one
does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

NAME = "sweepbench_biased_attention"  # at transformers


def registered(*, trained: bool) -> str:
    """The name at transformers of `biased_sdpa`, which it knows from now on; masks are made for it as for `sdpa`.

    Where the bias is `trained`, cuDNN's kernel is out of the question for the rest of this process.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    if trained:
        torch.backends.cuda.enable_cudnn_sdp(False)
    AttentionInterface.register(NAME, biased_sdpa)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def biased_sdpa(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    position_bias: torch.Tensor | None = None,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    """query, key, value (batch, heads, tokens, head) of a T5Attention -> (batch, tokens, heads, head) and no scores.

    `mask` (batch, 1, queries, keys), true where a query sees a key; None: causal where the module is and there are several queries, else
    every key. `position_bias` (1, heads, queries, keys) is added to the scores; a decoder's to its document is zeros, and left out.
    """
    across = module.is_decoder and not module.is_causal
    if mask is None and module.is_causal and query.shape[2] > 1:
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()[None, None]
    added = mask
    if position_bias is not None and not across:
        added = position_bias.to(query.dtype).contiguous()
        if mask is not None:
            added = torch.where(mask, added, torch.finfo(query.dtype).min).contiguous()
    output = functional.scaled_dot_product_attention(query, key, value, added, dropout_p=given["dropout"], scale=given["scaling"])
    return output.transpose(1, 2).contiguous(), None
