"""Linear layers in low precision for training: SwitchBack and simulated fp8 (Wortsman et al. 2023), torchao's fp8, bitsandbytes' int8.

Shapes: x (rows, inputs), weight W (outputs, inputs), gradient G (rows, outputs). Row-wise quantisation has one scale for each row,
tensor-wise quantisation one for the tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from experiments.components.layers import fused
from experiments.components.layers.fused import FP8, FP8_TOP, INT8_TOP, SMALLEST
from experiments.components.workload import Unsupported

# Of a layer's three products in training (output, gradient of the input, gradient of the weight), how many an arm computes in 8 bits.
# Simulated fp8 computes in the trial's precision. Which of its products bitsandbytes computes in int8 is not documented.
_IN_8_BITS: Mapping[str, tuple[str, int] | None] = {
    "plain": ("", 0),
    "switchback": ("int8", 2),
    "switchback_m": ("int8", 2),
    "switchback_q": ("int8", 2),
    "llm_int8": None,
    "fp8_tensorwise": ("fp8", 3),
    "fp8_switchback": ("fp8", 2),
    "fp8_simulated": ("", 0),
    "fp8_simulated_switchback": ("", 0),
}


def flops_by_precision(arm: str, precision: str, flops: float, replaced: float) -> dict[str, float] | None:
    """FLOPs of a training step by precision; None where the arm's products are not known.

    `flops`: of the whole step; `replaced`: those of them in the layers that the arm replaces, all three products; `precision`: the trial's.
    """
    known = _IN_8_BITS[arm]
    if known is None:
        return None
    low, products = known
    in_low = replaced * (products / 3)
    shares = {precision: flops - in_low, low: in_low}
    return {name: count for name, count in shares.items() if count}


def quantise(x: torch.Tensor, dim: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """(int8, fp32 scale) with x ~ int8 * scale, rounded to nearest even.

    Values along `dim` share a scale, whose shape has 1 there. None: the whole tensor shares one.
    """
    top = x.abs().amax() if dim is None else x.abs().amax(dim=dim, keepdim=True)
    scale = top.float().clamp(min=SMALLEST) / INT8_TOP
    return (x.float() / scale).round().to(torch.int8), scale


def int_matmul(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The product int32 (n, m) of int8 (n, k) and (k, m). Raises Unsupported on CUDA unless n > 16 and k and m are divisible by 8."""
    if left.is_cuda and (left.shape[0] <= 16 or left.shape[1] % 8 or right.shape[1] % 8):
        raise Unsupported(
            f"int8 product of {tuple(left.shape)} and {tuple(right.shape)}: needs more than 16 rows, and widths divisible by 8"
        )
    return torch._int_mm(left, right)


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
        return (int_matmul(rows, whole.t()).float() * row_scale * scale.reshape(1, -1)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
        *kept, weight = ctx.saved_tensors
        x = (kept[0].float() * kept[1]).to(gradient.dtype) if ctx.save_int8 else kept[0]
        to_x = to_weight = None
        if ctx.needs_input_grad[0]:
            rows, row_scale = quantise(gradient, 1)
            whole, scale = quantise(weight, 0 if ctx.by_row else None)
            columns = whole.t().contiguous().t()  # the layout that int8 matrix units want of the right factor
            to_x = (int_matmul(rows, columns).float() * row_scale * scale.reshape(1, -1)).to(x.dtype)
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


class LowPrecisionLinear(nn.Linear):
    """nn.Linear whose products are one of our arms. Under autocast it computes in autocast's type, as nn.Linear does."""

    arm: str
    fused: bool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind = x.device.type
        if torch.is_autocast_enabled(kind):
            x = x.to(torch.get_autocast_dtype(kind))
        flat = x.reshape(-1, x.shape[-1])
        with torch.autocast(kind, enabled=False):
            if self.fused:
                return fused.apply(self.arm, flat, self.weight, self.bias).view(*x.shape[:-1], -1)
            if self.arm.startswith("fp8"):
                out = SimulatedFp8.apply(flat, self.weight, self.arm.endswith("switchback"))  # type: ignore[no-untyped-call]
            else:
                out = SwitchBack.apply(flat, self.weight, self.arm == "switchback_m", self.arm == "switchback_q")  # type: ignore[no-untyped-call]
            if self.bias is not None:
                out = out + self.bias.to(out.dtype)
        return out.view(*x.shape[:-1], -1)  # type: ignore[no-any-return]


def replace(model: nn.Module, arm: str, chosen: list[tuple[nn.Module, str]], device_kind: str, kernels: str = "stock") -> None:
    """Replace nn.Linear layers of `model`, given as (parent, name), by layers of the arm with the same parameters.

    kernels: `stock`, from torch and libraries; or `fused`, from fused.py. Raises Unsupported where the device or a library cannot do it.
    """
    if arm == "plain":
        return
    if kernels == "fused" and (wrong := fused.why_not(arm, device_kind)):
        raise Unsupported(wrong)
    if kernels == "stock" and arm.startswith("fp8") and "simulated" not in arm:
        _torchao(model, arm, chosen, device_kind)
        return
    for parent, name in chosen:
        old: nn.Linear = getattr(parent, name)
        if arm == "llm_int8":
            setattr(parent, name, _bitsandbytes(old, device_kind))
            continue
        new = LowPrecisionLinear(old.in_features, old.out_features, bias=old.bias is not None, device="meta")
        new.weight, new.bias, new.arm, new.fused = old.weight, old.bias, arm, kernels == "fused"
        setattr(parent, name, new)


def _torchao(model: nn.Module, arm: str, chosen: list[tuple[nn.Module, str]], device_kind: str) -> None:
    if device_kind != "cuda" or torch.cuda.get_device_capability() < (8, 9):
        raise Unsupported(
            f"linear {arm}: needs a GPU with fp8 matrix units (compute capability 8.9); fp8_simulated gives its numbers elsewhere"
        )
    try:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    except ImportError as error:
        raise Unsupported(f"linear {arm}: torchao is not installed ({error})") from error
    recipe = "tensorwise" if arm == "fp8_tensorwise" else "rowwise_with_gw_hp"
    layer_ids = {id(getattr(parent, name)) for parent, name in chosen}
    settings = Float8LinearConfig.from_recipe_name(recipe)
    convert_to_float8_training(model, config=settings, module_filter_fn=lambda module, name: id(module) in layer_ids)


def _bitsandbytes(old: nn.Linear, device_kind: str) -> nn.Module:
    try:
        from bitsandbytes.nn import Linear8bitLt
    except ImportError as error:
        raise Unsupported(f"linear llm_int8: bitsandbytes is not installed ({error})") from error
    if device_kind != "cuda":
        raise Unsupported(f"linear llm_int8: bitsandbytes' int8 training runs on cuda, and this is {device_kind}")
    new = Linear8bitLt(old.in_features, old.out_features, bias=old.bias is not None, has_fp16_weights=True)
    new.weight.data, new.bias = old.weight.data, old.bias
    return new  # type: ignore[no-any-return]


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
