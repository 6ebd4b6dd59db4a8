"""The measured loop: what it does in which order, and that it records every step once and counts what was placed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from cluster.devices.clock import COMPUTE, COPY, DATA, UPDATE
from cluster.worker.measure.loop import run_steps
from experiments.step_record import StepTiming

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

    def step_kind(self, batch: dict[str, Any]) -> str | None:
        return None

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


class Parts(Scripted):
    """Micro-batches of growing size, of two kinds."""

    def __next__(self) -> dict[str, Any]:
        self.calls.append("next")
        return {"size": self.calls.count("next")}

    def place(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.calls.append("place")
        return batch

    def forward_backward(self, *batches: dict[str, Any]) -> torch.Tensor:
        self.calls.append("learn " + " ".join(str(batch["size"]) for batch in batches))
        return torch.tensor(0.5)


def test_a_step_of_micro_batches_has_its_marks_once_and_all_samples() -> None:
    script, recorded = Parts(), []
    assert run_steps(range(1, 3), script, script, script, recorded.append, 3) == 1 + 2 + 3 + 4 + 5 + 6
    first = ["fetch", *["next"] * 3, "DATA", *["place"] * 3, "COPY", "learn 1 2 3", "COMPUTE", "update 1", "UPDATE", "finish"]
    assert script.calls[: len(first)] == first and "learn 4 5 6" in script.calls
    assert recorded == ["1: 6 samples, loss 0.5", "2: 15 samples, loss 0.5"]


def test_no_steps_take_no_batch() -> None:
    script, recorded = Scripted(), []
    assert run_steps(range(3, 3), script, script, script, recorded.append) == 0
    assert script.calls == [] and recorded == []


class OfKinds(Scripted):
    """Steps of two kinds and one without; the clock returns a step two steps later, and what is left at the end."""

    def step_kind(self, batch: dict[str, Any]) -> str | None:
        return {0: "image", 1: "text", 2: None}[self.calls.count("next") % 3]

    def finish(self, step: int, samples: int, loss: torch.Tensor) -> list[Any]:
        self.waiting.append(StepTiming(step, samples, float(loss), 0.0, 0.0, 0.0, 0.0, 0.0, 1.0))  # type: ignore[arg-type]
        return [self.waiting.pop(0)] if len(self.waiting) > 2 else []


def test_each_step_is_recorded_with_its_own_kind_however_late_the_clock_is() -> None:
    script, recorded = OfKinds(), []
    run_steps(range(1, 8), script, script, script, recorded.append)
    assert [(timing.step, timing.step_kind) for timing in recorded] == [
        *((1, "text"), (2, None), (3, "image"), (4, "text"), (5, None), (6, "image"), (7, "text"))
    ]


def test_the_next_number_is_asked_for_when_the_step_before_was_submitted() -> None:
    script, recorded = Scripted(), []

    def numbers() -> Iterator[int]:
        yield 1
        script.calls.append("decide")
        yield 2

    run_steps(numbers(), script, script, script, recorded.append)
    decide = script.calls.index("decide")
    assert script.calls[decide - 1 : decide + 3] == ["finish", "decide", "fetch", "next"]
    assert len(recorded) == 2
