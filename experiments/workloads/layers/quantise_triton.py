"""Row-wise int8 quantisation in one pass over the tensor: one kernel reads a row, finds its scale and writes int8.

NEVER RUN YET: written for NVIDIA GPUs and tested on none. It is used only where a trial asks for it (`quantise: triton`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from experiments.workloads._protocol import Unsupported

WIDEST = 16_384  # columns that one program holds


def quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(int8 (rows, columns), scale (rows, 1) fp32), as low_precision.quantise(x, 1). Raises Unsupported without Triton or off CUDA."""
    if not x.is_cuda:
        raise Unsupported(f"quantise triton: only on cuda, and this is {x.device.type}")
    if x.shape[1] > WIDEST:
        raise Unsupported(f"quantise triton: rows of {x.shape[1]} are wider than {WIDEST}")
    kernel, next_power = _kernel()
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scale = torch.empty(x.shape[0], 1, dtype=torch.float32, device=x.device)
    kernel[(x.shape[0],)](x, out, scale, x.shape[1], BLOCK=next_power(x.shape[1]))
    return out, scale


@cache
def _kernel() -> tuple[Any, Any]:
    try:
        import triton
        import triton.language as tl
    except ImportError as error:
        raise Unsupported(f"quantise triton: triton is not installed ({error})") from error
    globals()["tl"] = tl  # a kernel looks names up in its module

    @triton.jit  # type: ignore[untyped-decorator]
    def kernel(x, out, scales, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        row = tl.program_id(0).to(tl.int64)
        at = tl.arange(0, BLOCK)
        here = at < columns
        values = tl.load(x + row * columns + at, mask=here, other=0.0).to(tl.float32)
        scale = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-12) / 127.0
        scaled = values / scale
        rounded = (scaled + 12582912.0) - 12582912.0  # 1.5 * 2**23: fp32 addition rounds to the nearest even integer
        tl.store(out + row * columns + at, rounded.to(tl.int8), mask=here)
        tl.store(scales + row, scale)

    return kernel, triton.next_power_of_2
