"""Triton kernels of the fused low-precision arms: quantising in one pass, and a matrix product that applies its scales in its epilogue.

Only fused.py imports this, once it knows that Triton is installed. Shapes are those of low_precision.py; all tensors are contiguous.
"""

from __future__ import annotations

import triton
import triton.language as tl

NEAREST = tl.constexpr(12582912.0)  # 1.5 * 2**23: added and taken away, fp32 is rounded to the nearest even integer


@triton.jit  # type: ignore[untyped-decorator]
def quantise_rows(x, out, scales, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A program for each row: its largest magnitude, its scale, its int8 values (rounded to nearest even)."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    here = at < columns
    values = tl.load(x + row * columns + at, mask=here, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-12) / 127.0
    scaled = values / scale
    tl.store(out + row * columns + at, ((scaled + NEAREST) - NEAREST).to(tl.int8), mask=here)
    tl.store(scales + row, scale)


@triton.jit  # type: ignore[untyped-decorator]
def cast_both_ways(  # type: ignore[no-untyped-def]
    x, scale, out, out_t, rows, columns, TOP: tl.constexpr, ROUND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """x / scale, limited to +-TOP, in out's type: as it lies and transposed, from one reading of x. ROUND: out is of integers."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    here = (row < rows)[:, None] & (column < columns)[None, :]
    values = tl.load(x + row[:, None] * columns + column[None, :], mask=here, other=0.0).to(tl.float32)
    scaled = tl.minimum(tl.maximum(values / tl.load(scale), -TOP), TOP)
    if ROUND:
        scaled = (scaled + NEAREST) - NEAREST
    small = scaled.to(out.dtype.element_ty)
    tl.store(out + row[:, None] * columns + column[None, :], small, mask=here)
    there = (column < columns)[:, None] & (row < rows)[None, :]
    tl.store(out_t + column[:, None] * rows + row[None, :], tl.trans(small), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def scaled_matmul(  # type: ignore[no-untyped-def]
    a, b, out, a_scale, b_scale, bias, rows, columns,
    LENGTH: tl.constexpr, BY_COLUMN: tl.constexpr, BIAS: tl.constexpr, SUM: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """out = (a b^T) * a_scale by row * b_scale + bias. a (rows, LENGTH) and b (columns, LENGTH) are descriptors of 8-bit tensors."""
    program = tl.program_id(0)
    across, down = tl.cdiv(columns, COLUMNS), tl.cdiv(rows, ROWS)
    group = program // (GROUP * across)  # neighbours share b's columns in the cache
    first = group * GROUP
    high = tl.minimum(down - first, GROUP)
    row = (first + (program % (GROUP * across)) % high) * ROWS
    column = ((program % (GROUP * across)) // high) * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), dtype=SUM)
    for at in tl.range(0, LENGTH, INNER):
        total = tl.dot(a.load([row, at]), b.load([column, at]).T, total, out_dtype=SUM)
    rows_here = row + tl.arange(0, ROWS)
    columns_here = column + tl.arange(0, COLUMNS)
    scaled = total.to(tl.float32) * tl.load(a_scale + rows_here, mask=rows_here < rows, other=0.0)[:, None]
    if BY_COLUMN:
        scaled *= tl.load(b_scale + columns_here, mask=columns_here < columns, other=0.0)[None, :]
    else:
        scaled *= tl.load(b_scale)
    if BIAS:
        scaled += tl.load(bias + columns_here, mask=columns_here < columns, other=0.0).to(tl.float32)[None, :]
    out.store([row, column], scaled.to(out.dtype))
