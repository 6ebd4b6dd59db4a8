"""The updates of bf16_states.py on CUDA: of all parameters as few launches, since their host's time is otherwise longer than a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch

SIZE = 2048  # elements of a chunk, a program's work
_ALIGNMENT = 16  # bytes that a thread loads at once


@dataclass(frozen=True)
class Update:
    """The tensors of one parameter's update, all of one shape and layout: parameter, gradient, averages, what the parameter is rounded to.

    `rate`: learning rate / (1 - beta1^t); `correction`: 1 - beta2^t, of the parameter's own number t of updates.
    """

    p: torch.Tensor
    g: torch.Tensor
    m: torch.Tensor
    v: torch.Tensor
    low: torch.Tensor | None
    rate: float
    correction: float

    def row(self) -> list[int]:
        """Of the kernel's table: addresses, and the number of elements."""
        low = self.low.data_ptr() if self.low is not None else 0
        return [self.p.data_ptr(), self.g.data_ptr(), self.m.data_ptr(), self.v.data_ptr(), low, self.p.numel()]


def launch(updates: Sequence[Update], *, step: int, before: int, decayed: float, weights: tuple[float, float], eps: float) -> int:
    """Update all of them, a launch for those of the same types. Returns `before`, the number of the step's chunks so far, with theirs.

    Both seed the rounding, with `step`: ranks that hold the same parameters round alike. `decayed`: 1 - learning rate * weight decay;
    `weights`: 1 - beta1 and 1 - beta2. Raises TypeError for averages that are not in bf16.
    """
    if any(average.dtype is not torch.bfloat16 for update in updates for average in (update.m, update.v)):
        raise TypeError("averages have to be in bf16, which loading a state does not keep: torch gives them the parameter's type")
    for (p, g, has_low), rows in _alike(updates).items():
        table = [update.row() for update in rows]
        aligned = all(address % _ALIGNMENT == 0 for row in table for address in row[:-1])
        device = rows[0].p.device
        chunks = _chunks(tuple(row[-1] for row in table), device)
        rates = [[update.rate, update.correction] for update in rows]
        _kernel()[(len(chunks),)](
            _sent(table, torch.int64, device),
            _sent(rates, torch.float32, device),
            chunks,
            step,
            before,
            decayed,
            *weights,
            eps,
            P=_type(p),
            G=_type(g),
            LOW=has_low,
            ALIGNED=aligned,
            SIZE=SIZE,
            num_warps=8,
        )
        before += len(chunks)
    return before


def chunks_of(sizes: Sequence[int], size: int = SIZE) -> list[tuple[int, int]]:
    """(tensor, number of the chunk in it) of the chunks of `size` elements that cover tensors of `sizes` elements; the last is shorter."""
    return [(tensor, number) for tensor, elements in enumerate(sizes) for number in range(-(-elements // size))]


def _alike(updates: Sequence[Update]) -> dict[tuple[torch.dtype, torch.dtype, bool], list[Update]]:
    found: dict[tuple[torch.dtype, torch.dtype, bool], list[Update]] = {}
    for update in updates:
        if update.p.numel():
            found.setdefault((update.p.dtype, update.g.dtype, update.low is not None), []).append(update)
    return found


@lru_cache(maxsize=8)
def _chunks(sizes: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(chunks_of(sizes), dtype=torch.int64).to(device)


def _sent(rows: list[Any], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """On the device, without waiting for it."""
    return torch.tensor(rows, dtype=dtype).pin_memory().to(device, non_blocking=True)


@cache
def _kernel() -> Any:
    from cluster.worker.train.adamw_kernel import adamw

    return adamw


def _type(dtype: torch.dtype) -> Any:
    import triton.language as tl

    return {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[dtype]
