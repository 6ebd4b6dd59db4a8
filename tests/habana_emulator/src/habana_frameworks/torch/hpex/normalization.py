"""FusedClipNorm: one norm over all gradients, clipped in place."""

from typing import Any

import torch


class FusedClipNorm:
    calls = 0

    def __init__(self, parameters: Any, max_norm: float) -> None:
        self.max_norm = max_norm

    def clip_norm(self, parameters: Any) -> Any:
        FusedClipNorm.calls += 1
        return torch.nn.utils.clip_grad_norm_(list(parameters), self.max_norm)
