"""A slow-down made on purpose has the size it says, only in the measured window, and is refused where its size would not be known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cluster.worker import torch_internals
from cluster.worker.measure import slowdown
from cluster.worker.measure.slowdown import SlowedTrainStep
from experiments.components.workload import Unsupported

TICK = 2.0**-13  # s that one look at the clock takes: what waits by the clock gets on


class Host:
    """A clock of virtual seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        self.now += TICK
        return self.now


class Worker:
    """A train step whose copy, computation and update take the given times. Its loss is the batch's number."""

    def __init__(self, host: Host, kind: str = "cpu") -> None:
        self.device = SimpleNamespace(torch_device=SimpleNamespace(type=kind))
        self.host, self.parts = host, (0.25, 0.25, 0.25)
        self.updates: list[int] = []

    def place(self, batch: Any) -> Any:
        self.host.now += self.parts[0]
        return {"placed": batch}

    def forward_backward(self, batch: Any) -> torch.Tensor:
        self.host.now += self.parts[1]
        return torch.tensor(float(batch["placed"]))

    def update(self, step: int) -> None:
        self.host.now += self.parts[2]
        self.updates.append(step)

    def step_kind(self, batch: Any) -> str | None:
        return "pair"

    def samples(self, batch: Any) -> int:
        return 7


class Gpu:
    """What torch.cuda has of it, in place of torch: a clock that needs one kernel to reach its full rate."""

    RATE = 1e9

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 0.0, []
        self.cuda = SimpleNamespace(_sleep=self.sleep, Event=self.event)
        for module in (slowdown, torch_internals):
            monkeypatch.setattr(module, "torch", self)

    def sleep(self, cycles: int) -> None:
        self.now += cycles / (self.RATE if self.slept else self.RATE / 2)
        self.slept.append(cycles)

    def event(self, *, enable_timing: bool) -> Any:
        assert enable_timing
        made = SimpleNamespace(at=None, synchronize=lambda: None)
        made.record = lambda: setattr(made, "at", self.now)
        made.elapsed_time = lambda other: (other.at - made.at) * 1000
        return made


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()
    monkeypatch.setattr(slowdown, "time", made)
    return made


def durations(slowed: SlowedTrainStep, host: Host, steps: range, loading_s: float = 0.25) -> list[float]:
    """Of each step: loading included, as a trial's clock counts it."""
    found = []
    for step in steps:
        began = host.now
        host.now += loading_s
        placed = slowed.place(step)
        assert slowed.samples(placed) == 7 and float(slowed.forward_backward(placed)) == step
        slowed.update(step)
        found.append(host.now - began)
    return found


def test_each_measured_step_is_longer_by_the_share_of_all_of_it_and_warm_up_is_not(host: Host) -> None:
    slowed = SlowedTrainStep(Worker(host), 0.5)  # type: ignore[arg-type]
    assert durations(slowed, host, range(1, 11)) == pytest.approx([1.0] * 10, abs=10 * TICK)
    slowed.start()
    first, *others = durations(slowed, host, range(11, 31))
    assert first == pytest.approx(1.0 + 0.5 * 0.75, abs=10 * TICK), "nobody knows when the first one began to wait for its batch"
    assert others == pytest.approx([1.5] * 19, abs=10 * TICK)
    assert slowed.inner.updates == list(range(1, 31))  # type: ignore[attr-defined]


def test_what_passes_between_warm_up_and_the_window_is_no_part_of_a_step(host: Host) -> None:
    slowed = SlowedTrainStep(Worker(host), 1.0)  # type: ignore[arg-type]
    durations(slowed, host, range(1, 3))
    slowed.start()
    host.now += 1000  # the ranks wait for each other
    assert durations(slowed, host, range(3, 5)) == pytest.approx([1.75, 2.0], abs=10 * TICK)


def test_a_gpu_counts_cycles_for_the_share_of_the_median_warm_up_step(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, worker = Gpu(monkeypatch), Worker(host, "cuda")
    slowed = SlowedTrainStep(worker, 0.08)  # type: ignore[arg-type]
    for step, seconds in enumerate([60.0, 60.0, 3.0, 1.0, 20.0, 2.0, 1.0], 1):  # compilation in the first two; median of the others: 2 s
        worker.parts = (0.0, seconds, 0.0)
        durations(slowed, host, range(step, step + 1), loading_s=0.0)
    assert gpu.slept == []
    slowed.start()
    probes = len(gpu.slept)
    assert durations(slowed, host, range(8, 11), loading_s=0.0) == pytest.approx([1.0] * 3, abs=10 * TICK), "the host does not wait"
    assert gpu.slept[probes:] == pytest.approx([0.08 * 2.0 * Gpu.RATE] * 3, rel=1e-3)
    assert all(isinstance(cycles, int) for cycles in gpu.slept)


def test_the_host_of_a_cpu_asks_no_gpu(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (slowdown, torch_internals):
        monkeypatch.setattr(module, "torch", None)
    slowed = SlowedTrainStep(Worker(host), 0.5)  # type: ignore[arg-type]
    slowed.start()  # without any warm-up
    durations(slowed, host, range(1, 2))


def test_where_the_size_would_not_be_known_the_trial_is_unsupported(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unsupported, match="device of kind hpu"):
        SlowedTrainStep(Worker(host, "hpu"), 0.08)  # type: ignore[arg-type]
    Gpu(monkeypatch)
    short = SlowedTrainStep(Worker(host, "cuda"), 0.08)  # type: ignore[arg-type]
    durations(short, host, range(1, 5))
    with pytest.raises(Unsupported, match="at least 5 warm-up steps"):
        short.start()
    durations(short, host, range(5, 6))
    short.start()
