"""Linear layers in low precision for training: SwitchBack and simulated fp8 (Wortsman et al. 2023), in torch's operations.

Shapes: x (rows, inputs), weight W (outputs, inputs), gradient G (rows, outputs). Row-wise quantisation has one scale for each row,
tensor-wise quantisation one for the tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from experiments.components.layers import fused
from experiments.components.layers.fused import FP8, FP8_TOP, INT8_TOP, SMALLEST, Cast
from experiments.components.layers.whole import whole
from experiments.precision import Precision

ROWS, LEAST_ROWS = 16, 32  # what 8-bit units take: a multiple of the first, and no fewer than the second


def quantise(x: torch.Tensor, dim: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """(int8, fp32 scale) with x ~ int8 * scale, rounded to nearest even.

    Values along `dim` share a scale, whose shape has 1 there. None: the whole tensor shares one.
    """
    top = x.abs().amax() if dim is None else x.abs().amax(dim=dim, keepdim=True)
    scale = top.float().clamp(min=SMALLEST) / INT8_TOP
    return (x.float() / scale).round().to(torch.int8), scale


class SwitchBack(torch.autograd.Function):
    """int8 forward and input gradient, 16-bit weight gradient. `save_int8`: SwitchBackM. `by_row`: SwitchBackQ, W by row and column."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, save_int8: bool, by_row: bool) -> torch.Tensor:
        rows, row_scale = quantise(x, 1)
        if save_int8:
            ctx.save_for_backward(rows, row_scale, weight)
        else:
            ctx.save_for_backward(x, weight)
        ctx.save_int8, ctx.by_row = save_int8, by_row
        whole, scale = quantise(weight, 1 if by_row else None)
        return (torch._int_mm(rows, whole.t()).float() * row_scale * scale.reshape(1, -1)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
        *kept, weight = ctx.saved_tensors
        x = (kept[0].float() * kept[1]).to(gradient.dtype) if ctx.save_int8 else kept[0]
        to_x = to_weight = None
        if ctx.needs_input_grad[0]:
            rows, row_scale = quantise(gradient, 1)
            whole, scale = quantise(weight, 0 if ctx.by_row else None)
            columns = whole.t().contiguous().t()  # the layout that int8 matrix units want of the right factor
            to_x = (torch._int_mm(rows, columns).float() * row_scale * scale.reshape(1, -1)).to(x.dtype)
        if ctx.needs_input_grad[1]:
            to_weight = (gradient.t() @ x).to(weight.dtype)
        return to_x, to_weight, None, None


def simulate_fp8(x: torch.Tensor) -> torch.Tensor:
    """x rounded to e4m3 with one scale for the tensor, in x's own type: the values of fp8 without its speed."""
    scale = x.abs().amax().float().clamp(min=SMALLEST) / FP8_TOP
    return ((x.float() / scale).to(FP8).float() * scale).to(x.dtype)


class SimulatedFp8(torch.autograd.Function):
    """All three products on tensor-wise e4m3; with `switchback` the weight gradient in high precision."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, switchback: bool) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.switchback = switchback
        return simulate_fp8(x) @ simulate_fp8(weight.to(x.dtype)).t()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        x, weight = ctx.saved_tensors
        small = simulate_fp8(gradient)
        to_x = small @ simulate_fp8(weight.to(x.dtype)) if ctx.needs_input_grad[0] else None
        to_weight = (gradient.t() @ x) if ctx.switchback else small.t() @ simulate_fp8(x)
        return to_x, to_weight.to(weight.dtype) if ctx.needs_input_grad[1] else None, None


@whole
def switchback(x: torch.Tensor, weight: torch.Tensor, save_int8: bool, by_row: bool) -> torch.Tensor:
    """As SwitchBack.forward."""
    return SwitchBack.apply(x, weight, save_int8, by_row)  # type: ignore[no-any-return,no-untyped-call]


@whole
def simulated_fp8(x: torch.Tensor, weight: torch.Tensor, weights_gradient_exact: bool) -> torch.Tensor:
    """As SimulatedFp8.forward; `weights_gradient_exact` is its `switchback`."""
    return SimulatedFp8.apply(x, weight, weights_gradient_exact)  # type: ignore[no-any-return,no-untyped-call]


class LowPrecisionLinear(nn.Linear):
    """nn.Linear whose products are in a low precision of ours. Under autocast it computes in autocast's type, as nn.Linear does.

    8-bit units take the sum over rows in multiples of 16, and int8's more than 16 rows: further rows are zeros, which change nothing.
    """

    def __init__(self, old: nn.Linear, precision: Precision, *, fused: bool = False) -> None:
        """With the parameters of `old`. `fused`: by the kernels of fused.py."""
        super().__init__(old.in_features, old.out_features, bias=old.bias is not None, device="meta")
        self.weight, self.bias = old.weight, old.bias
        self.precision, self.fused = precision, fused
        self.kept: Cast | None = None  # the weight in 8 bits, if it is cast once for each update: kept_weights.py

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind = x.device.type
        if torch.is_autocast_enabled(kind):
            x = x.to(torch.get_autocast_dtype(kind))
        flat = x.reshape(-1, x.shape[-1])
        rows = flat.shape[0]
        more = -rows % ROWS if rows > ROWS else LEAST_ROWS - rows
        if more:
            flat = functional.pad(flat, (0, 0, 0, more))
        return self._product(flat)[:rows].view(*x.shape[:-1], -1)

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused:
            return fused.apply(self.precision, x, self.weight, self.bias, self.kept)
        if self.precision.startswith("fp8"):
            out = simulated_fp8(x, self.weight, self.precision.endswith("switchback"))
        else:
            save_int8, by_row = self.precision == "int8_switchback_m", self.precision == "int8_switchback_q"
            out = switchback(x, self.weight, save_int8, by_row)
        return out if self.bias is None else out + self.bias.to(out.dtype)
