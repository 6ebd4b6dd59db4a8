"""What the all-reduce costs: which steps count, in which order, and how many bytes go round by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed

from cluster.worker.measure import communication
from cluster.worker.measure.communication import BUCKET_BYTES, measure
from experiments.step_record import StepTiming

DEVICE: Any = SimpleNamespace(torch_device=torch.device("cpu"), synchronize=lambda: None)


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each tensor that is summed over two ranks, which have the same values."""
    found: list[int] = []

    def all_reduce(tensor: torch.Tensor, async_op: bool = False) -> Any:
        found.append(tensor.numel() * tensor.element_size())
        tensor *= 2
        return SimpleNamespace(wait=lambda: None)

    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    monkeypatch.setattr(distributed, "barrier", lambda: None)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    return found


def test_blocks_of_steps_with_and_without_it_without_the_first_of_each(summed: list[int]) -> None:
    """With the all-reduce 0.1, 0.2, ... s, without it half as much; the first step of a block takes 100 times as long. A drift over the
    blocks, which are in the order with, without, without, with, cancels."""
    apart, order, numbers = [False], list[bool](), iter(range(1, 100))

    @contextmanager
    def gradients_apart(on: bool) -> Iterator[None]:
        apart[0] = on
        yield
        apart[0] = False

    def run(count: int, record: Callable[[StepTiming], None]) -> None:
        order.append(not apart[0])
        for at in range(count):
            seconds = (0.1 if apart[0] else 0.2) * (100 if at == 0 else 1) + 0.01 * len(order)
            record(StepTiming(next(numbers), 1, 0.0, 0.0, 0.0, 0.0, seconds, 0.05, seconds + 0.05))

    train_step: Any = SimpleNamespace(gradients_apart=gradients_apart, trained=[torch.zeros(10)])
    found = measure(train_step, DEVICE, 2, run)
    assert order == [True, False, False, True] and found["steps"] == 2
    assert (found["with_s"], found["without_s"], found["step_s"]) == pytest.approx((0.225, 0.125, 0.275), rel=1e-6)
    assert found["bytes"] == 40


@pytest.mark.parametrize(
    ("size", "parts"), [(40, [40]), (BUCKET_BYTES, [BUCKET_BYTES]), (5 * BUCKET_BYTES + 8, [BUCKET_BYTES] * 5 + [8]), (2, [4])]
)
def test_as_many_bytes_go_round_as_the_gradients_have(size: int, parts: list[int], summed: list[int]) -> None:
    assert communication._alone(size, DEVICE) > 0
    assert summed == parts, "in buckets of DDP's; a float at least"
