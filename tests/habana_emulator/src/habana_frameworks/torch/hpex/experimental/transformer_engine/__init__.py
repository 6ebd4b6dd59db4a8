"""fp8, emulated: values are rounded to what 8 bits hold, with a scale for each tensor, and multiplied in its own type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from habana_frameworks.torch.hpex.experimental.transformer_engine import recipe

import torch

__all__ = ["Linear", "fp8_autocast", "recipe"]

_active: list[recipe.DelayedScaling] = []


@contextmanager
def fp8_autocast(enabled: bool = False, fp8_recipe: recipe.DelayedScaling | None = None) -> Iterator[None]:
    if not enabled:
        yield
        return
    _active.append(fp8_recipe or recipe.DelayedScaling())
    try:
        yield
    finally:
        _active.pop()


def _rounded(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    scale = torch.finfo(kind).max / x.abs().amax().clamp(min=1e-12).float()
    return ((x.float() * scale).to(kind).float() / scale).to(x.dtype)


class _Fp8(torch.autograd.Function):
    """All three products of rounded operands."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x, weight = _rounded(x, torch.float8_e4m3fn), _rounded(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        grad = _rounded(grads[0], torch.float8_e5m2)
        return grad @ weight, grad.flatten(0, -2).t() @ x.flatten(0, -2)


class Linear(torch.nn.Module):
    """In 8 bits within fp8_autocast, else in the type of its input. `passes`: in 8 bits so far, of all layers."""

    passes = 0

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        params_dtype: torch.dtype = torch.float32,
        skip_weight_param_allocation: bool = False,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        if not skip_weight_param_allocation:
            self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, dtype=params_dtype).normal_(std=0.02))
            self.bias = torch.nn.Parameter(torch.zeros(out_features, dtype=params_dtype)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not _active:
            return torch.nn.functional.linear(x, self.weight, self.bias)
        Linear.passes += 1
        kind = torch.get_autocast_dtype("hpu") if torch.is_autocast_enabled("hpu") else x.dtype
        with torch.autocast("hpu", enabled=False):
            out = _Fp8.apply(x.to(kind), self.weight.to(kind))
            return out if self.bias is None else out + self.bias.to(kind)
