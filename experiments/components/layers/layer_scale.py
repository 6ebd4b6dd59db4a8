"""Layer scale: a layer's output times a learnt vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class _ZeroScaled(nn.Module):
    """A layer whose output is multiplied by a learnt vector that starts at 0 (Touvron et al. 2021, with their constant at 0)."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.scale = layer, nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        return out * self.scale.to(out.dtype)


def zero_scaled(layer: Any) -> nn.Module:
    """The layer, its output multiplied by a learnt vector that starts at 0 (layer scale)."""
    return _ZeroScaled(layer, int(layer.out_features))
