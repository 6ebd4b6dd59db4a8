"""The products of CLIP-H/14's blocks in bf16, int8 and fp8, and what their quantising costs, on one GPU: TFLOP/s, and bytes a second.

    python -m benchmarks.bench_kernels --rows 24672

Without a GPU it says so and measures nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import torch

SHAPES = ((1280, 1280), (5120, 1280), (1280, 5120))  # (outputs, inputs) of q, k, v, out; of the MLP's first; of its second
TILES = ((128, 256, 128, 8, 3), (128, 256, 128, 8, 4), (128, 128, 128, 4, 4), (256, 128, 128, 8, 3), (128, 256, 64, 8, 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=24_672, help="batch x tokens: 96 x 257")
    parser.add_argument("--tiles", action="store_true", help="try the tile sizes of our product, which takes a minute of compilation")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print(json.dumps({"benchmark": "kernels", "skipped": "no GPU"}))
        return
    rows = []
    for outputs, inputs in SHAPES:
        rows += products(options.rows, outputs, inputs, tiles=options.tiles and (outputs, inputs) == SHAPES[1])
    for columns in sorted({inputs for _, inputs in SHAPES}):
        rows += passes(options.rows, columns)
    for row in rows:
        print(json.dumps(row))
    print(json.dumps({"benchmark": "kernels", "device": torch.cuda.get_device_name(), "rows": options.rows}))


def milliseconds(work: Callable[[], object]) -> float:
    """Median of many calls, the cache emptied before each."""
    import triton.testing

    return float(triton.testing.do_bench(work, warmup=10, rep=40, return_mode="median"))


def products(rows: int, outputs: int, inputs: int, *, tiles: bool) -> list[dict[str, Any]]:
    from experiments.components.layers import fused

    x = torch.randn(rows, inputs, device="cuda").bfloat16()
    weight = torch.randn(outputs, inputs, device="cuda").bfloat16()
    x8, x8_t, x_scale = fused.cast_fp8(x)
    w8, _, w_scale = fused.cast_fp8(weight)
    xi, row_scale = fused.quantise_rows(x)
    wi, _, wi_scale = fused.cast_tensor(weight, fp8=False)
    xr, fp8_rows = fused.cast_rows(x)
    work: dict[str, Callable[[], object]] = {
        "bf16": lambda: x @ weight.t(),
        "fp8, fast sums": lambda: fused._fp8(x8, w8, x_scale, w_scale, None, torch.bfloat16, fast=True),
        "fp8, exact sums": lambda: fused._fp8(x8, w8, x_scale, w_scale, None, torch.bfloat16, fast=False),
        "int8 of torch": lambda: torch._int_mm(xi, wi.t()),
    }
    shape = f"{outputs} x {inputs}"
    flops = 2.0 * rows * outputs * inputs
    results = []
    for name, call in work.items():
        results.append({"name": f"{name}, {shape}", "tflops": flops / milliseconds(call) / 1e9})
    # the weight gradient: inner dimension is the rows
    gradient = torch.randn(rows, outputs, device="cuda").bfloat16()
    _, g8_t, g_scale = fused.cast_fp8(gradient)
    for name, call in {
        "bf16, weight gradient": lambda: gradient.t() @ x,
        "fp8, weight gradient, fast sums": lambda: fused._fp8(g8_t, x8_t, g_scale, x_scale, None, torch.float32, fast=True),
        "fp8, weight gradient, exact sums": lambda: fused._fp8(g8_t, x8_t, g_scale, x_scale, None, torch.float32, fast=False),
    }.items():
        results.append({"name": f"{name}, {shape}", "tflops": flops / milliseconds(call) / 1e9})
    own = fused.TILE
    try:
        for tile in TILES if tiles else (own,):
            fused.TILE = tile
            for name, a, b, a_scale, b_scale in (("int8 fused", xi, wi, row_scale, wi_scale), ("fp8 fused", xr, w8, fp8_rows, w_scale)):
                try:
                    ms = milliseconds(lambda: fused.scaled_matmul(a, b, a_scale, b_scale, None, torch.bfloat16))  # noqa: B023  # called at once
                    results.append({"name": f"{name}, {shape}", "tile": str(tile), "tflops": flops / ms / 1e9})
                except Exception as error:  # a tile that does not fit the device is an answer too
                    results.append({"name": f"{name}, {shape}", "tile": str(tile), "error": str(error)[:120]})
    finally:
        fused.TILE = own
    return results


def passes(rows: int, columns: int) -> list[dict[str, Any]]:
    from experiments.components.layers import fused

    x = torch.randn(rows, columns, device="cuda").bfloat16()
    scale = torch.ones(1, device="cuda")
    compiled = torch.compile(fused.quantise_rows)
    size = float(x.numel())
    work: dict[str, tuple[Callable[[], object], float]] = {
        "rows to int8": (lambda: fused.quantise_rows(x), 3 * size),
        "rows to int8, compiled": (lambda: compiled(x), 3 * size),
        "cast both ways": (lambda: torch.ops.sweepbench.cast_both_ways(x, scale, fused.FP8), 4 * size),
        "largest magnitude": (lambda: fused.largest(x, by_row=False), 2 * size),
        "copy": (x.clone, 4 * size),
    }
    return [
        {"name": f"{name}, {columns} wide", "terabytes_per_s": count / milliseconds(call) / 1e9} for name, (call, count) in work.items()
    ]


if __name__ == "__main__":
    main()
