"""What the kernel of bf16_launch.py is given, without a GPU; tests/gpu has what it computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cluster.worker.train import bf16_launch
from cluster.worker.train.bf16_launch import Update, chunks_of, launch

BF16, FP32 = torch.bfloat16, torch.float32


class Kernel:
    """Takes down what it is launched with."""

    def __init__(self) -> None:
        self.launches: list[tuple[int, tuple[Any, ...], dict[str, Any]]] = []

    def __getitem__(self, grid: tuple[int]) -> Any:
        return lambda *given, **named: self.launches.append((grid[0], given, named))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    found = Kernel()
    monkeypatch.setattr(bf16_launch, "_kernel", lambda: found)
    monkeypatch.setattr(bf16_launch, "_sent", lambda rows, dtype, device: torch.tensor(rows, dtype=dtype))
    monkeypatch.setattr(bf16_launch, "_type", lambda dtype: dtype)
    return found


def update(size: int, gradient: torch.dtype = FP32, low: bool = False, first: int = 0, rate: float = 0.5) -> Update:
    """Of `size` elements, from the element `first` of longer tensors."""
    p, g, m, v, rounded = (torch.zeros(first + size, dtype=dtype)[first:] for dtype in (FP32, gradient, BF16, BF16, BF16))
    return Update(p, g, m, v, rounded if low else None, rate, 0.25)


def launched(updates: list[Update]) -> None:
    assert launch(updates, step=7, before=100, decayed=0.999, weights=(0.1, 0.01), eps=1e-8) == 100 + len(
        chunks_of([one.p.numel() for one in updates])
    )


def test_chunks_cover_every_element_once() -> None:
    assert chunks_of([4, 5, 0, 9], 4) == [(0, 0), (1, 0), (1, 1), (3, 0), (3, 1), (3, 2)]
    assert len(chunks_of([bf16_launch.SIZE, bf16_launch.SIZE + 1])) == 3


def test_all_parameters_of_the_same_types_are_one_launch(kernel: Kernel) -> None:
    updates = [update(3000), update(5, BF16, low=True), update(40, rate=0.125), update(0)]
    launched(updates)
    (grid, given, named), (other_grid, others, other_named) = kernel.launches
    tensors, rates, chunks, *numbers = given
    assert grid == 3 and chunks.tolist() == [[0, 0], [0, 1], [1, 0]], "2,048 elements a chunk; what is empty has none"
    assert tensors.tolist() == [updates[0].row(), updates[2].row()]
    assert updates[2].row() == [one.data_ptr() for one in (updates[2].p, updates[2].g, updates[2].m, updates[2].v)] + [0, 40]
    assert rates.tolist() == [[0.5, 0.25], [0.125, 0.25]]
    assert numbers == [7, 100, 0.999, 0.1, 0.01, 1e-8]
    assert others[4] == 103, "its chunks are numbered on, so that they are rounded by other random numbers"
    assert (named["P"], named["G"], named["LOW"]) == (FP32, FP32, False)
    low = updates[1].low
    assert low is not None and other_grid == 1 and others[0].tolist()[0][4] == low.data_ptr()
    assert (other_named["P"], other_named["G"], other_named["LOW"]) == (FP32, BF16, True)


@pytest.mark.parametrize(("first", "aligned"), [(0, True), (8, True), (4, False), (1, False)])
def test_threads_load_sixteen_bytes_at_once_only_where_every_tensor_begins_at_such_an_address(
    kernel: Kernel, first: int, aligned: bool
) -> None:
    launched([update(64), update(64, first=first)])  # four elements are 16 bytes of fp32 and 8 of bf16
    assert kernel.launches[0][2]["ALIGNED"] is aligned


def test_averages_in_another_type_are_refused(kernel: Kernel) -> None:
    good = update(4)
    with pytest.raises(TypeError, match="averages have to be in bf16"):
        launch(
            [Update(good.p, good.g, good.m, good.v.float(), None, 0.5, 0.25)], step=1, before=0, decayed=1.0, weights=(0.1, 0.01), eps=1e-8
        )
    assert not kernel.launches
