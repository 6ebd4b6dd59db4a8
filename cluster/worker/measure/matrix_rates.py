"""How long a matrix product takes on a device in a bare loop: the rate that its shape, type and layout attain there.

The loop does nothing else. Its operands have random values, since a GPU at its power limit multiplies zeros faster than values, and go
round through copies that together are twice the device's cache, so that no call finds in it what the one before left.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch

from cluster.worker.measure.matrix_shapes import SCALED, SCALED_BY_RECIPE, Operand, Product
from cluster.worker.torch_internals import count_cycles

LOOP_S = 0.01  # of one timed loop: long beside a launch, short beside the time in which a GPU's power limit lowers its clocks
LOOPS = 5  # of which the median counts
_WARM, _FEWEST, _MOST = 3, 3, 500  # calls: before any is timed, and of a loop. A GPU's queue takes some thousand launches
_AHEAD_CYCLES = 40_000  # a call: 20 us at 2 GHz, in which most hosts launch it
_LONGER, _TRIES = 4, 4  # so many times as long, where the host was slower, and so often in all
_HOST_CACHE = 32 * 2**20  # bytes; torch does not know a CPU's


class SlowHost(RuntimeError):
    """The host launches slower than the device computes, so the device's clock would tell how long the launches took."""


def seconds_of(product: Product, device: torch.device) -> float:
    """Seconds of a call on `device`, the median over loops. Raises ValueError unless it is cuda or cpu, SlowHost, and what torch raises."""
    if device.type not in ("cuda", "cpu"):
        raise ValueError(f"no clock is known here for a device of kind {device.type}")
    with torch.no_grad():
        sets = cycle(operand_sets(product, device))
        call = caller(product)

        def once() -> None:
            call(next(sets))

        timed = _on_gpu if device.type == "cuda" else _on_host
        for _ in range(_WARM):
            once()
        calls = min(_MOST, max(_FEWEST, round(LOOP_S / timed(once, _FEWEST))))
        return statistics.median(timed(once, calls) for _ in range(LOOPS))


def caller(product: Product) -> Callable[[list[torch.Tensor | None]], torch.Tensor]:
    """What computes the product of its operands."""
    function: Callable[..., torch.Tensor] = getattr(torch, product.op)
    if product.op not in (SCALED, SCALED_BY_RECIPE):
        return lambda operands: function(*operands)
    kind = getattr(torch, product.out_dtype) if product.out_dtype else None

    def scaled(operands: list[torch.Tensor | None]) -> torch.Tensor:
        left, right, left_scale, right_scale, bias = operands
        if product.op == SCALED_BY_RECIPE:
            left_recipe, left_swizzle, right_recipe, right_swizzle = map(list, product.scaling)
            scales = [left_scale], left_recipe, left_swizzle, [right_scale], right_recipe, right_swizzle
            return function(left, right, *scales, bias, kind, [], product.fast)
        fast: dict[str, Any] = {"bias": bias, "out_dtype": kind, "use_fast_accum": product.fast}
        return function(left, right, left_scale, right_scale, **fast)

    return scaled


def operand_sets(product: Product, device: torch.device) -> list[list[torch.Tensor | None]]:
    """Copies of the product's operands, with values of their own, which together are twice the device's cache, and at least one."""
    draw = torch.Generator(device).manual_seed(0)
    cache = torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else _HOST_CACHE
    first = _operands(product, device, draw)
    size = sum(tensor.untyped_storage().nbytes() for tensor in first if tensor is not None)
    return [first, *(_operands(product, device, draw) for _ in range(min(_MOST, math.ceil(2 * cache / size)) - 1))]


def _operands(product: Product, device: torch.device, draw: torch.Generator) -> list[torch.Tensor | None]:
    """The scales of scaled products are 1."""
    is_scale = [product.op in (SCALED, SCALED_BY_RECIPE) and at in (2, 3) for at in range(len(product.operands))]
    return [None if one is None else _filled(one, device, draw, scale) for one, scale in zip(product.operands, is_scale, strict=True)]


def _filled(operand: Operand, device: torch.device, draw: torch.Generator, scale: bool) -> torch.Tensor:
    """A tensor of this shape and these strides, which may repeat elements or leave some out. Values are normal, of int8 all alike often."""
    kind = getattr(torch, operand.dtype)
    size = 1 + sum((length - 1) * stride for length, stride in zip(operand.shape, operand.strides, strict=True))
    if scale:
        flat = torch.ones(size, device=device)
    elif kind == torch.int8:
        flat = torch.randint(-127, 128, (size,), device=device, generator=draw, dtype=torch.int16)
    else:
        flat = torch.randn(size, device=device, generator=draw)
    return flat.to(kind).as_strided(operand.shape, operand.strides)


def _on_gpu(once: Callable[[], None], calls: int) -> float:
    """Seconds of a call by the device's clock, which has nothing of the host's in it.

    A kernel that only counts keeps the device busy until the host has launched all calls; where it ended before that, a longer one does.
    Raises SlowHost.
    """
    for attempt in range(_TRIES):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        count_cycles(calls * _AHEAD_CYCLES * _LONGER**attempt)
        start.record()
        for _ in range(calls):
            once()
        in_time = not start.query()  # type: ignore[no-untyped-call]
        end.record()
        end.synchronize()
        if in_time:
            elapsed_ms: float = start.elapsed_time(end)
            return elapsed_ms / 1000 / calls
    raise SlowHost(f"{calls} calls were not launched in the time of {calls * _AHEAD_CYCLES * _LONGER ** (_TRIES - 1):,} cycles")


def _on_host(once: Callable[[], None], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        once()
    return (time.perf_counter() - started) / calls
