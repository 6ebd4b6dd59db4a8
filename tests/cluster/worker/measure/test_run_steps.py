"""The measured loop: what it does in which order, and that it records every step once and counts what was placed."""

from __future__ import annotations

from typing import Any

import torch

from cluster.devices.clock import COMPUTE, COPY, DATA, UPDATE
from cluster.worker.measure.loop import run_steps

MARKS = {DATA: "DATA", COPY: "COPY", COMPUTE: "COMPUTE", UPDATE: "UPDATE"}


class Scripted:
    """Learner, clock and batches in one, which write down what is called. The clock returns a step when the next one ends."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.waiting: list[str] = []

    def __iter__(self) -> Scripted:
        return self

    def __next__(self) -> dict[str, Any]:
        self.calls.append("next")
        return {"size": 100}

    def place(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.calls.append("place")
        return {"size": batch["size"] + 1}

    def forward_backward(self, batch: dict[str, Any]) -> torch.Tensor:
        self.calls.append(f"learn {batch['size']}")
        return torch.tensor(0.5)

    def update(self, step: int) -> None:
        self.calls.append(f"update {step}")

    def samples(self, batch: dict[str, Any]) -> int:
        return int(batch["size"])

    def begin(self) -> None: ...

    def fetch(self) -> None:
        self.calls.append("fetch")

    def mark(self, boundary: int) -> None:
        self.calls.append(MARKS[boundary])

    def finish(self, step: int, samples: int, loss: torch.Tensor) -> list[Any]:
        known, self.waiting = self.waiting, [f"{step}: {samples} samples, loss {float(loss)}"]
        self.calls.append("finish")
        return known

    def drain(self) -> list[Any]:
        return self.waiting


def test_each_part_is_marked_where_it_ends_and_each_step_recorded_once() -> None:
    script, recorded = Scripted(), []
    assert run_steps(range(3, 6), script, script, script, recorded.append) == 3 * 101, "what was placed counts"
    expected = ["fetch", "next", "DATA", "place", "COPY", "learn 101", "COMPUTE", "update {}", "UPDATE", "finish"]
    assert script.calls == [call.format(step) for step in (3, 4, 5) for call in expected]
    assert recorded == [f"{step}: 101 samples, loss 0.5" for step in (3, 4, 5)]


def test_no_steps_take_no_batch() -> None:
    script, recorded = Scripted(), []
    assert run_steps(range(3, 3), script, script, script, recorded.append) == 0
    assert script.calls == [] and recorded == []
