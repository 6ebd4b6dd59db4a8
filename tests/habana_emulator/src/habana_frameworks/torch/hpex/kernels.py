"""FusedSDPA, which optimum-habana imports."""

from typing import Any

from torch.nn.functional import scaled_dot_product_attention


class FusedSDPA:
    @staticmethod
    def apply(q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, is_causal: bool = False, scale: Any = None, *_: Any) -> Any:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout or 0.0, is_causal=bool(is_causal), scale=scale)
