"""Triton kernel of bf16_launch.py: AdamW over many tensors in one launch, its averages in bf16. Only that file imports this, on CUDA."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def random_halves(seed, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Two int32 in [0, 2^16) for each of SIZE elements: the upper and the lower half of a number of Philox, which makes four at a time."""
    a, b, c, d = tl.randint4x(seed, tl.arange(0, SIZE // 4))
    drawn = tl.join(tl.join(a, b), tl.join(c, d)).reshape(SIZE).to(tl.int32, bitcast=True)
    return (drawn >> 16) & 0xFFFF, drawn & 0xFFFF


@triton.jit
def to_bf16(values, lower):  # type: ignore[no-untyped-def]
    """fp32 values in bf16, rounded as bf16_states.rounded does; `lower`: int32 in [0, 2^16), what is added to the half that is cut off."""
    bits = values.to(tl.int32, bitcast=True) + lower
    cut = (bits & -65536).to(tl.float32, bitcast=True)
    is_number = values == values  # noqa: PLR0124  Triton has no other word for it
    return tl.where(is_number, cut, values).to(tl.bfloat16)  # of NaN the sum could carry into the sign, and leave 0


@triton.jit  # type: ignore[untyped-decorator]
def update(  # type: ignore[no-untyped-def]
    p, g, m, v, low, at, here, seed, rate, correction, decayed, weight1, weight2, eps,
    P: tl.constexpr, G: tl.constexpr, LOW: tl.constexpr, ALIGNED: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Of the elements `at`, those that are `here`, or all where that is None."""
    p, g = p.to(tl.pointer_type(P)), g.to(tl.pointer_type(G))
    m, v, low = m.to(tl.pointer_type(tl.bfloat16)), v.to(tl.pointer_type(tl.bfloat16)), low.to(tl.pointer_type(tl.bfloat16))
    if ALIGNED:
        p, g, low = tl.multiple_of(p, 16), tl.multiple_of(g, 16), tl.multiple_of(low, 16)
        m, v = tl.multiple_of(m, 16), tl.multiple_of(v, 16)
    p, g, m, v = p + at, g + at, m + at, v + at
    gradient = tl.load(g, mask=here).to(tl.float32)
    mean = tl.load(m, mask=here).to(tl.float32)
    square = tl.load(v, mask=here).to(tl.float32)
    mean += weight1 * (gradient - mean)
    square += weight2 * (gradient * gradient - square)
    of_mean, of_square = random_halves(seed, SIZE)
    tl.store(m, to_bf16(mean, of_mean), mask=here)
    tl.store(v, to_bf16(square, of_square), mask=here)
    updated = tl.load(p, mask=here).to(tl.float32) * decayed - rate * mean / (tl.sqrt(square / correction) + eps)
    tl.store(p, updated.to(P), mask=here)
    if LOW:
        tl.store(low + at, updated.to(tl.bfloat16), mask=here)


# Not specialised, or it would be compiled for a first step and for each that 16 divides
@triton.jit(do_not_specialize=["step", "before"])  # type: ignore[untyped-decorator]
def adamw(  # type: ignore[no-untyped-def]
    tensors, rates, chunks, step, before, decayed, weight1, weight2, eps,
    P: tl.constexpr, G: tl.constexpr, LOW: tl.constexpr, ALIGNED: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """A program for each chunk of SIZE elements. `tensors` (n, 6) int64: addresses of parameter, gradient, both averages and the rounded
    parameter (0 without LOW), and the number of elements. `rates` (n, 2) fp32: learning rate / (1 - beta1^t), 1 - beta2^t. `chunks` (c, 2)
    int64: a chunk's tensor, and its number there. `step`, and `before`, the step's chunks in earlier launches: no two chunks are rounded by
    the same random numbers. `decayed`: 1 - learning rate * weight decay; `weight1`, `weight2`: 1 - beta.

    Of a whole chunk at ALIGNED addresses a thread moves 16 bytes at once: what was loaded as int64 is not known to be aligned unless it is
    said, and what is masked element by element is loaded so.
    """
    program = tl.program_id(0)
    tensor = tl.load(chunks + 2 * program)
    first = tl.load(chunks + 2 * program + 1) * SIZE
    row = tensors + 6 * tensor
    p, g, m, v, low = tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3), tl.load(row + 4)
    rate, correction = tl.load(rates + 2 * tensor), tl.load(rates + 2 * tensor + 1)
    elements = tl.load(row + 5)
    seed = (step.to(tl.int64) << 32) + before + program
    at = first + tl.arange(0, SIZE)
    if first + SIZE <= elements:
        update(p, g, m, v, low, at, None, seed, rate, correction, decayed, weight1, weight2, eps, P, G, LOW, ALIGNED, SIZE)
    else:
        update(p, g, m, v, low, at, at < elements, seed, rate, correction, decayed, weight1, weight2, eps, P, G, LOW, ALIGNED, SIZE)
