"""A slow-down made on purpose has the size it says, only in the measured window, and is refused where its size would not be known."""

from __future__ import annotations

import statistics
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cluster.worker.measure.slowdown import Slowed
from experiments.components.workload import Unsupported


class Busy:
    """A train step whose update takes a millisecond. `spent` is what each step took without the slow-down."""

    def __init__(self, kind: str = "cpu") -> None:
        self.device = SimpleNamespace(torch_device=SimpleNamespace(type=kind))
        self.spent: list[float] = []

    def place(self, batch: Any) -> Any:
        self.began = time.perf_counter()
        return batch

    def forward_backward(self, batch: Any) -> torch.Tensor:
        return torch.zeros(())

    def update(self, step: int) -> None:
        while time.perf_counter() - self.began < 0.001:
            pass
        self.spent.append(time.perf_counter() - self.began)

    def samples(self, batch: Any) -> int:
        return 1


def ratios(slowed: Slowed, steps: range) -> list[float]:
    """Of each step: what it took over what its work took."""
    found = []
    for step in steps:
        began = time.perf_counter()
        slowed.place({})
        slowed.forward_backward({})
        slowed.update(step)
        found.append((time.perf_counter() - began) / slowed.inner.spent[-1])  # type: ignore[attr-defined]
    return found


def test_each_measured_step_is_longer_by_the_share_and_warm_up_is_not() -> None:
    slowed = Slowed(Busy(), 0.5)  # type: ignore[arg-type]
    assert statistics.median(ratios(slowed, range(1, 21))) < 1.1
    slowed.start()
    assert statistics.median(ratios(slowed, range(21, 81))) == pytest.approx(1.5, abs=0.08)


def test_where_the_size_would_not_be_known_the_trial_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="device of kind hpu"):
        Slowed(Busy("hpu"), 0.08)  # type: ignore[arg-type]
    short = Slowed(Busy("cuda"), 0.08)  # type: ignore[arg-type]
    ratios(short, range(1, 4))
    with pytest.raises(Unsupported, match="at least 5 warm-up steps"):
        short.start()
