"""The device clock on a simulated device: the real clock and the real loop, only the events are fake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from cluster.devices.clock import RUN_AHEAD, UPDATE, EventClock, HostClock
from cluster.worker.measure.loop import run_steps
from experiments.step_record import StepTiming

HOST_LAUNCH = 0.001  # s that the host needs to give the device one part of a step
COMPUTE = 0.010  # s that the device computes per step
UPDATE_TIME = 0.002


class Simulation:
    """A host and a device with a queue, in virtual seconds."""

    def __init__(self) -> None:
        self.host = 0.0
        self.device_free_at = 0.0
        self.deepest = 0.0  # how far the host ran ahead of the device, s

    def launch(self, seconds: float) -> None:
        self.host += HOST_LAUNCH
        self.device_free_at = max(self.device_free_at, self.host) + seconds
        self.deepest = max(self.deepest, self.device_free_at - self.host)

    def event(self) -> FakeEvent:
        return FakeEvent(self)


class FakeEvent:
    """A torch.cuda.Event with timing."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.at = simulation, -1.0

    def record(self) -> None:
        self.at = max(self.simulation.device_free_at, self.simulation.host)

    def synchronize(self) -> None:
        self.simulation.host = max(self.simulation.host, self.at)

    def elapsed_time(self, other: FakeEvent) -> float:
        assert other.at <= self.simulation.host + 1e-12, "read before the device had passed it"
        return (other.at - self.at) * 1000


class FakeTrainStep:
    """Spends simulated time; the loss is the step's number."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.step = simulation, 0

    def place(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch

    def forward_backward(self, batch: dict[str, Any]) -> torch.Tensor:
        self.step += 1
        self.simulation.launch(COMPUTE)
        return torch.tensor(float(self.step))

    def update(self, step: int) -> None:
        self.simulation.launch(UPDATE_TIME)

    def samples(self, batch: dict[str, Any]) -> int:
        return 4


def run(simulation: Simulation, *, loading_s: float, steps: int = 20) -> list[StepTiming]:
    def batches() -> Iterator[dict[str, Any]]:
        while True:
            simulation.host += loading_s
            yield {}

    clock = EventClock(simulation.event, lambda: torch.zeros(()), wall=lambda: 1000 + simulation.host)
    clock.begin()
    timings: list[StepTiming] = []
    assert run_steps(range(1, steps + 1), batches(), FakeTrainStep(simulation), clock, timings.append) == 4 * steps
    return timings


def test_a_fast_loader_leaves_no_wait_on_the_devices_timeline() -> None:
    simulation = Simulation()
    timings = run(simulation, loading_s=0.004)
    assert [timing.step for timing in timings] == list(range(1, 21))
    assert [timing.loss for timing in timings] == [float(step) for step in range(1, 21)]
    for timing in timings[3:]:  # after the queue has filled, the host's 4 ms are hidden behind the device's 12
        assert timing.data_wait_s == pytest.approx(0, abs=1e-9)
        assert timing.forward_backward_s == pytest.approx(COMPUTE)
        assert timing.total_s == pytest.approx(COMPUTE + UPDATE_TIME)


def test_a_slow_loader_shows_as_waiting_and_the_parts_add_up() -> None:
    simulation = Simulation()
    timings = run(simulation, loading_s=0.030)
    for timing in timings[3:]:
        assert timing.total_s == pytest.approx(0.030 + 2 * HOST_LAUNCH)  # the host's pace
        assert timing.data_wait_s > 0.015
        parts = timing.data_wait_s + timing.h2d_s + timing.forward_backward_s + timing.optimizer_s
        assert parts == pytest.approx(timing.total_s)
    wall = timings[-1].ended_at - 1000
    assert sum(timing.total_s for timing in timings) == pytest.approx(wall)


def test_the_host_runs_ahead_but_not_far() -> None:
    simulation = Simulation()
    run(simulation, loading_s=0.0, steps=200)
    step = COMPUTE + UPDATE_TIME
    assert simulation.deepest > step, "it waited for every step: nothing overlaps"
    assert simulation.deepest < (RUN_AHEAD + 2) * step


def test_end_times_rise_and_are_unix_times() -> None:
    timings = run(Simulation(), loading_s=0.001)
    times = [timing.ended_at for timing in timings]
    assert times == sorted(times) and times[0] > 1000


def test_beginning_again_needs_a_drained_clock() -> None:
    simulation = Simulation()
    clock = EventClock(simulation.event, lambda: torch.zeros(()))
    clock.begin()
    for mark in range(UPDATE + 1):
        clock.mark(mark)
    clock.finish(1, 4, torch.tensor(1.0))
    with pytest.raises(RuntimeError, match="drain"):
        clock.begin()
    clock.drain()
    clock.begin()


@pytest.mark.parametrize("clock", [HostClock(), EventClock(Simulation().event, lambda: torch.zeros(()))])
def test_marks_out_of_order_are_an_error(clock: HostClock | EventClock) -> None:
    clock.begin()
    with pytest.raises(RuntimeError, match="out of order"):
        clock.mark(1)


def test_the_host_clock_splits_a_step_at_its_marks() -> None:
    now = iter([0.0, 0.5, 0.6, 1.6, 2.0, 2.25, 2.25, 3.0, 3.5])
    clock = HostClock(lambda: next(now), lambda: 77.0)
    clock.begin()
    for mark in range(UPDATE + 1):
        clock.mark(mark)
    (first,) = clock.finish(1, 8, torch.tensor(2.0))
    assert (first.step, first.samples, first.loss, first.ended_at, first.total_s) == (1, 8, 2.0, 77.0, 2.0)
    assert (first.data_wait_s, first.h2d_s, first.forward_backward_s, first.optimizer_s) == pytest.approx((0.5, 0.1, 1.0, 0.4))
    for mark in range(UPDATE + 1):
        clock.mark(mark)
    (second,) = clock.finish(2, 8, torch.tensor(1.0))
    assert second.data_wait_s == 0.25, "a step begins where the one before ended"
    assert second.total_s == 1.5
