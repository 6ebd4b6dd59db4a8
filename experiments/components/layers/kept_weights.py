"""Weights of fp8 layers in 8 bits, cast once for each update instead of in every forward pass.

A weight changes with an update alone. Cast in the forward pass it costs each layer three kernels to launch (its largest magnitude in two,
the cast); cast here, all layers' are one CUDA graph, which the host launches at once. The numbers are the same.
"""

from __future__ import annotations

import torch
from torch import nn

from experiments.components.layers.cuda_graphs import Replay, recorded
from experiments.components.layers.fused import FP8, FP8_TOP, SMALLEST, cast_into
from experiments.components.layers.low_precision import LowPrecisionLinear

APART = 4  # floats from one scale to the next: cuBLAS takes scales at addresses that are multiples of 16 bytes only


def keep(model: nn.Module, *, compiled: bool) -> KeptWeights | None:
    """Let the model's fp8 layers with fused kernels read weights that are cast by `refresh`; None if it has no such layer.

    The parameters must be where they stay: not sharded, and on their device. `compiled`: torch.compile will take the layers.
    """
    layers = [one for one in model.modules() if type(one) is LowPrecisionLinear and one.fused and one.precision == "fp8"]
    return KeptWeights(layers, compiled=compiled) if layers else None


class KeptWeights:
    """The weights of some layers in e4m3, as they lie and transposed, with a scale each. Call `refresh` before they are used."""

    def __init__(self, layers: list[LowPrecisionLinear], *, compiled: bool) -> None:
        self._weights = [layer.weight.detach() for layer in layers]
        self._scales = torch.empty(len(layers), APART, dtype=torch.float32, device=self._weights[0].device)[:, 0]
        self._casts = [
            (weight.new_empty(weight.shape, dtype=FP8), weight.new_empty(weight.shape[::-1], dtype=FP8), self._scales[at : at + 1])
            for at, weight in enumerate(self._weights)
        ]
        self._replay: Replay | None = None
        for layer, cast in zip(layers, self._casts, strict=True):
            layer.kept = cast
            if compiled:
                for tensor in cast:  # a CUDA graph of torch.compile's then reads it where it lies, rather than a copy
                    torch._dynamo.mark_static_address(tensor)

    @torch.no_grad()
    def refresh(self) -> None:
        """Cast all weights anew, as fused.cast_fp8 does. On a GPU the first time is recorded, and replayed from then on."""
        if self._replay is not None:
            self._replay()
            return
        self._cast()
        if self._scales.is_cuda:
            self._replay, _ = recorded(self._cast)

    def _cast(self) -> None:
        # the largest of values rounded to bf16 is the largest one, rounded
        tops = torch.stack(torch._foreach_norm(self._weights, float("inf"))).bfloat16().float()
        torch.div(tops.clamp(min=SMALLEST), FP8_TOP, out=self._scales)
        for weight, (small, small_t, scale) in zip(self._weights, self._casts, strict=True):
            cast_into(weight.bfloat16(), scale, small, small_t)
