"""The low-precision arms with their quantising fused: torch operators around the kernels of triton_kernels.py, and the autograd of them.

The plain arms are slow because of the passes over memory around the matrix product, not because of the product. Here
- the largest magnitude of a row or a tensor is plain torch, which torch.compile fuses with what made the tensor (a norm, an activation);
- one kernel reads a tensor once and writes it in 8 bits twice, as it is and transposed. fp8 units read both factors along the inner
  dimension, so the weight gradient needs both factors transposed;
- the product's epilogue applies scales and bias before it writes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from experiments.components.layers.whole import whole
from experiments.components.workload import Unsupported
from experiments.precision import Precision

INT8_TOP, FP8_TOP = 127.0, 448.0  # largest magnitudes of int8, symmetric, and of e4m3
FP8 = torch.float8_e4m3fn
SMALLEST = 1e-12  # of a scale's numerator: a tensor of zeros stays one


def why_not(device_kind: str) -> str | None:
    """Why the fused kernels cannot run on this kind of device, in words for the user; None if they can."""
    if device_kind != "cuda":
        return f"kernels fused: Triton's, for cuda, and this is {device_kind}"
    if torch.cuda.get_device_capability() < (9, 0):
        return "kernels fused: they use Hopper's tensor descriptors (compute capability 9.0)"
    try:
        _kernels()
    except ImportError as error:
        return f"kernels fused: triton is not installed ({error})"
    return None


@cache
def _kernels() -> Any:
    from experiments.components.layers import triton_kernels

    return triton_kernels


def _operator(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Make `run` the operator of `schema`, which torch.compile takes as one operation; `fake` gives tensors like its results.

    Not by torch.library.custom_op: the layers of Python that this puts around a call cost the host several times what launching the kernel
    does, and a step has hundreds of calls. None of these operators writes into its inputs or is differentiated.
    """
    name = "sweepbench::" + schema[: schema.index("(")]
    torch.library.define(name, schema[schema.index("(") :], tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(name, ("cpu", "cuda"), run)
    torch.library.register_fake(name, fake)


def _tiles(length: int, tile: int) -> int:
    """How many tiles cover a length. Not triton.cdiv, which is made for kernels and slow to call."""
    return -(-length // tile)


def largest(x: torch.Tensor, *, by_row: bool) -> torch.Tensor:
    """The largest magnitude of each row (rows, 1), or of all (1,), fp32. By row first, which joins an operation that worked on rows."""
    rows: torch.Tensor = torch.linalg.vector_norm(x, float("inf"), dim=-1, keepdim=True).float()
    return rows if by_row else rows.amax(dim=0)


def _run_quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import triton

    out = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scale = torch.empty(x.shape[0], 1, dtype=torch.float32, device=x.device)
    _kernels().quantise_rows[(x.shape[0],)](x, out, scale, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out, scale


def _fake_quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape, dtype=torch.int8), x.new_empty((x.shape[0], 1), dtype=torch.float32)


_operator("quantise_rows(Tensor x) -> (Tensor, Tensor)", _run_quantise_rows, _fake_quantise_rows)


def quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(int8, scale (rows, 1)). Compiled it is plain torch, which becomes part of the kernel that makes x; else one kernel of ours."""
    if not torch.compiler.is_compiling():
        return torch.ops.sweepbench.quantise_rows(x.contiguous())  # type: ignore[no-any-return]
    scale = largest(x, by_row=True).clamp(min=SMALLEST) / INT8_TOP
    return (x.float() / scale).round().to(torch.int8), scale


def cast_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(e4m3 x, scale (rows, 1)) with x ~ e4m3 * scale, in plain torch."""
    scale = largest(x, by_row=True).clamp(min=SMALLEST) / FP8_TOP
    return (x.float() / scale).clamp(-FP8_TOP, FP8_TOP).to(FP8), scale


def cast_into(x: torch.Tensor, scale: torch.Tensor, out: torch.Tensor, out_t: torch.Tensor) -> None:
    """Write x (rows, columns) / scale (1,) into `out`, of int8 or e4m3, and transposed into `out_t`. Raises ValueError for x of 32 bits."""
    if x.element_size() != 2:  # from fp32, on an H200 and with Triton 3.6, a quarter of the transposed values was garbage
        raise ValueError(f"cast_into takes 16-bit tensors, and this is {x.dtype}")
    whole = out.dtype is torch.int8
    top = INT8_TOP if whole else FP8_TOP
    if x.device.type == "cpu":  # for tests
        scaled = (x.float() / scale).clamp(-top, top)
        out.copy_(scaled.round() if whole else scaled)
        out_t.copy_(out.t())
        return
    rows, columns = x.shape
    high, wide = 64, 64
    grid = (_tiles(rows, high), _tiles(columns, wide))
    _kernels().cast_both_ways[grid](x, scale, out, out_t, rows, columns, TOP=top, ROUND=whole, ROWS=high, COLUMNS=wide)


def _run_cast_both_ways(x: torch.Tensor, scale: torch.Tensor, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    out, out_t = _fake_cast_both_ways(x, scale, kind)
    cast_into(x, scale, out, out_t)
    return out, out_t


def _fake_cast_both_ways(x: torch.Tensor, scale: torch.Tensor, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    return x.new_empty((rows, columns), dtype=kind), x.new_empty((columns, rows), dtype=kind)


_operator("cast_both_ways(Tensor x, Tensor scale, ScalarType kind) -> (Tensor, Tensor)", _run_cast_both_ways, _fake_cast_both_ways)


def cast_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """cast_tensor in e4m3: (rows, columns), (columns, rows), scale (1,)."""
    return cast_tensor(x, fp8=True)


def cast_tensor(x: torch.Tensor, *, fp8: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(8-bit x, its transpose, scale (1,)) with one scale for the tensor: e4m3 if `fp8`, else int8. fp32 is rounded to bf16 first."""
    x = x.bfloat16() if x.dtype is torch.float32 else x
    kind, top = (FP8, FP8_TOP) if fp8 else (torch.int8, INT8_TOP)
    scale = largest(x, by_row=False).clamp(min=SMALLEST) / top
    small, small_t = torch.ops.sweepbench.cast_both_ways(x.contiguous(), scale.reshape(1), kind)
    return small, small_t, scale.reshape(1)


def _run_scaled_matmul(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor, bias: torch.Tensor | None, kind: torch.dtype
) -> torch.Tensor:
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    (rows, inner), columns = a.shape, b.shape[0]
    out = torch.empty(rows, columns, dtype=kind, device=a.device)
    high, wide, deep, warps, stages = TILE
    grid = (_tiles(rows, high) * _tiles(columns, wide),)
    _kernels().scaled_matmul[grid](
        TensorDescriptor.from_tensor(a, [high, deep]),
        TensorDescriptor.from_tensor(b, [wide, deep]),
        TensorDescriptor.from_tensor(out, [high, wide]),
        a_scale,
        b_scale,
        bias,
        rows,
        columns,
        LENGTH=inner,
        BY_COLUMN=b_scale.numel() > 1,
        BIAS=bias is not None,
        SUM=tl.int32 if a.dtype is torch.int8 else tl.float32,
        ROWS=high,
        COLUMNS=wide,
        INNER=deep,
        GROUP=8,
        num_warps=warps,
        num_stages=stages,
    )
    return out


def _fake_scaled_matmul(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor, bias: torch.Tensor | None, kind: torch.dtype
) -> torch.Tensor:
    return a.new_empty((a.shape[0], b.shape[0]), dtype=kind)


_operator(
    "scaled_matmul(Tensor a, Tensor b, Tensor a_scale, Tensor b_scale, Tensor? bias, ScalarType kind) -> Tensor",
    _run_scaled_matmul,
    _fake_scaled_matmul,
)


TILE = (128, 256, 128, 8, 4)  # rows, columns, inner, warps, stages: the fastest that benchmarks/bench_kernels.py --tiles found on an H200


def scaled_matmul(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor, bias: torch.Tensor | None, kind: torch.dtype
) -> torch.Tensor:
    """(a b^T) * a_scale (rows, 1) * b_scale (columns, 1) or (1,) + bias, in `kind`. Raises Unsupported for widths not divisible by 16."""
    if a.shape[1] % 16 or b.shape[0] % 16:
        raise Unsupported(f"product of 8-bit {tuple(a.shape)} and {tuple(b.shape)}: widths must be divisible by 16")
    return torch.ops.sweepbench.scaled_matmul(a, b, a_scale, b_scale, bias, kind)  # type: ignore[no-any-return]


class SwitchBack(torch.autograd.Function):
    """As low_precision.SwitchBack with tensor-wise weights: int8 or (`fp8`) e4m3 forward and input gradient, 16-bit weight gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, fp8: bool) -> torch.Tensor:
        rows, row_scale = cast_rows(x) if fp8 else quantise_rows(x)
        small, small_t, scale = cast_tensor(weight, fp8=fp8)
        ctx.save_for_backward(x, small_t, scale)
        ctx.fp8, ctx.has_bias, ctx.kind = fp8, bias is not None, weight.dtype
        return scaled_matmul(rows, small, row_scale, scale, None if bias is None else bias.to(x.dtype), x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, small_t, scale = ctx.saved_tensors
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            rows, row_scale = cast_rows(gradient) if ctx.fp8 else quantise_rows(gradient)
            to_x = scaled_matmul(rows, small_t, row_scale, scale, None, x.dtype)
        if ctx.needs_input_grad[1]:
            to_weight = (gradient.t() @ x).to(ctx.kind)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            to_bias = gradient.sum(dim=0, dtype=torch.float32).to(ctx.kind)
        return to_x, to_weight, to_bias, None


class Fp8TensorWise(torch.autograd.Function):
    """All three products in e4m3, a scale for each tensor. Only the transposed 8-bit input is kept for the backward pass.

    Products along the rows of a batch are long sums: there the units' exact accumulation is asked for, elsewhere the fast one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        w: torch.Tensor,
        w_t: torch.Tensor,
        w_scale: torch.Tensor,
    ) -> torch.Tensor:
        """`w`, `w_t`, `w_scale`: cast_fp8(weight). `weight` itself is here for its gradient, and is not read."""
        small, small_t, scale = cast_fp8(x)
        ctx.save_for_backward(small_t, scale, w_t, w_scale)
        ctx.has_bias, ctx.kind = bias is not None, weight.dtype
        return _fp8(small, w, scale, w_scale, None if bias is None else bias.to(x.dtype), x.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x_t, x_scale, w_t, w_scale = ctx.saved_tensors
        small, small_t, scale = cast_fp8(gradient)
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = _fp8(small, w_t, scale, w_scale, None, gradient.dtype, fast=True)
        if ctx.needs_input_grad[1]:
            to_weight = _fp8(small_t, x_t, scale, x_scale, None, ctx.kind, fast=False)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            to_bias = gradient.sum(dim=0, dtype=torch.float32).to(ctx.kind)
        return to_x, to_weight, to_bias, None, None, None


def _fp8(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    bias: torch.Tensor | None,
    kind: torch.dtype,
    *,
    fast: bool,
) -> torch.Tensor:
    """(a b^T) * a_scale * b_scale + bias by torch's own kernel; a (rows, inner), b (columns, inner), every length divisible by 16."""
    if a.shape[0] % 16 or a.shape[1] % 16 or b.shape[0] % 16:
        raise Unsupported(f"fp8 product of {tuple(a.shape)} and {tuple(b.shape)}: lengths must be divisible by 16")
    return torch._scaled_mm(a, b.t(), scale_a=a_scale, scale_b=b_scale, bias=bias, out_dtype=kind, use_fast_accum=fast)


Cast = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # what cast_tensor gives


def apply(precision: Precision, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, kept: Cast | None = None) -> torch.Tensor:
    """The layer's output (rows, outputs) in x's type. x (rows, inputs) in 16 bits, weight (outputs, inputs). `precision`: one of FUSED.

    `kept`: the weight as cast_fp8 gives it, for fp8, where that has been done before; None: it is cast here.
    """
    if x.dtype is torch.float32:
        raise Unsupported(f"kernels fused: precision {precision} takes 16-bit inputs; set autocast")
    if precision == "fp8":
        small = cast_fp8(weight.detach()) if kept is None else kept
        return fp8_tensor_wise(x, weight, bias, *small)
    return switchback(x, weight, bias, precision == "fp8_switchback")


@whole
def fp8_tensor_wise(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, w: torch.Tensor, w_t: torch.Tensor, w_scale: torch.Tensor
) -> torch.Tensor:
    """As Fp8TensorWise.forward."""
    return Fp8TensorWise.apply(x, weight, bias, w, w_t, w_scale)  # type: ignore[no-any-return,no-untyped-call]


@whole
def switchback(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, fp8: bool) -> torch.Tensor:
    """As SwitchBack.forward."""
    return SwitchBack.apply(x, weight, bias, fp8)  # type: ignore[no-any-return,no-untyped-call]
