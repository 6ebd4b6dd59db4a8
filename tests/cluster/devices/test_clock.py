"""The device clock on a simulated device: the real clock and the real loop, only the events are fake."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch

from cluster.devices.clock import DATA, RUN_AHEAD, UPDATE, EventClock, HostClock, StepTiming
from cluster.worker.measure.loop import run_steps
from tests.clock_support import HOST_LAUNCH, Simulation

COPY = 0.003  # s that the device needs to take a batch
COMPUTE = 0.010  # s that the device computes per step
UPDATE_TIME = 0.002
STEP = COPY + COMPUTE + UPDATE_TIME


class Learner:
    """Spends simulated time; the loss is the step's number."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.step = simulation, 0

    def place(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.simulation.launch(COPY)
        return {"placed": True}

    def forward_backward(self, batch: dict[str, Any]) -> torch.Tensor:
        self.step += 1
        self.simulation.launch(COMPUTE)
        return torch.tensor(float(self.step))

    def update(self, step: int) -> None:
        self.simulation.launch(UPDATE_TIME)

    def step_kind(self, batch: dict[str, Any]) -> str | None:
        return None

    def samples(self, batch: dict[str, Any]) -> int:
        return 4 if batch == {"placed": True} else 0


def run(simulation: Simulation, *, loading_s: float, steps: int = 20, clock: HostClock | EventClock | None = None) -> list[StepTiming]:
    def batches() -> Iterator[dict[str, Any]]:
        while True:
            simulation.host += loading_s
            yield {}

    clock = clock or EventClock(simulation.event, lambda: torch.zeros(()), wall=lambda: 1000 + simulation.host, now=lambda: simulation.host)
    clock.begin()
    timings: list[StepTiming] = []
    assert run_steps(range(1, steps + 1), batches(), Learner(simulation), clock, timings.append) == 4 * steps
    return timings


def test_a_fast_loader_leaves_no_wait_on_the_devices_timeline() -> None:
    simulation = Simulation()
    timings = run(simulation, loading_s=0.004)
    assert [timing.step for timing in timings] == list(range(1, 21))
    assert [timing.loss for timing in timings] == [float(step) for step in range(1, 21)]
    for timing in timings[3:]:  # after the queue has filled, the host's 7 ms are hidden behind the device's 15
        assert timing.data_wait_s == pytest.approx(0, abs=1e-9)
        assert timing.loader_wait_s == pytest.approx(0.004), "the host waits while the device computes"
        assert timing.h2d_s == pytest.approx(COPY)
        assert timing.forward_backward_s == pytest.approx(COMPUTE)
        assert timing.optimizer_s == pytest.approx(UPDATE_TIME)
        assert timing.total_s == pytest.approx(STEP)


def test_a_slow_loader_shows_as_waiting_and_the_parts_add_up() -> None:
    simulation = Simulation()
    loading = 0.030
    timings = run(simulation, loading_s=loading)
    for timing in timings[1:]:
        # the host's pace. The device is done with a step 13 ms after the host is, and stands idle until the next batch is there
        assert timing.total_s == pytest.approx(loading + 3 * HOST_LAUNCH)
        assert timing.data_wait_s == pytest.approx(loading - (STEP - 2 * HOST_LAUNCH))
        assert timing.loader_wait_s == pytest.approx(loading)
        assert timing.h2d_s == pytest.approx(HOST_LAUNCH + COPY), "from when the batch was on the host"
        assert timing.forward_backward_s == pytest.approx(COMPUTE)
        assert timing.optimizer_s == pytest.approx(UPDATE_TIME)
    wall = timings[-1].ended_at - 1000
    assert sum(timing.total_s for timing in timings) == pytest.approx(wall) == pytest.approx(simulation.device_free_at)


def test_the_host_runs_ahead_but_not_far() -> None:
    simulation = Simulation()
    run(simulation, loading_s=0.0, steps=200)
    assert RUN_AHEAD == 3
    # at most: three whole steps and the one that the host has just handed over, less the time the host took for that one
    assert simulation.deepest == pytest.approx(4 * STEP - 3 * HOST_LAUNCH)
    assert simulation.events < 30, "events are made anew instead of being used again"


def test_end_times_are_unix_times_on_the_devices_timeline() -> None:
    simulation = Simulation()
    simulation.device_free_at = 5.0  # the clock begins when the device is idle: it waits for that
    timings = run(simulation, loading_s=0.001)
    assert timings[0].ended_at == pytest.approx(1005 + 0.001 + HOST_LAUNCH + STEP)
    for before, after in pairwise(timings):
        assert after.ended_at - before.ended_at == pytest.approx(after.total_s)


def test_beginning_again_needs_a_drained_clock() -> None:
    simulation = Simulation()
    clock = EventClock(simulation.event, lambda: torch.zeros(()))
    clock.begin()
    for mark in range(UPDATE + 1):
        clock.mark(mark)
    clock.finish(1, 4, torch.tensor(1.0))
    with pytest.raises(RuntimeError, match="drain"):
        clock.begin()
    assert [timing.step for timing in clock.drain()] == [1]
    assert clock.drain() == []
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
    assert second.step == 2 and clock.drain() == []


def test_the_host_clock_begins_anew_where_a_step_was_left_half_done() -> None:
    now = iter([0.0, 1.0, 10.0, 11.0, 12.0, 13.0, 14.0])
    clock = HostClock(lambda: next(now), lambda: 0.0)
    clock.begin()
    clock.mark(DATA)
    clock.begin()
    for mark in range(UPDATE + 1):
        clock.mark(mark)
    (timing,) = clock.finish(1, 1, torch.tensor(0.0))
    assert (timing.data_wait_s, timing.total_s) == (1.0, 4.0)


def test_one_batch_at_a_time_is_timed_from_the_host_until_its_output_is_computed() -> None:
    simulation = Simulation()

    def synchronise() -> None:
        simulation.host = max(simulation.host, simulation.device_free_at)

    clock = HostClock(lambda: simulation.host, lambda: 1000 + simulation.host, synchronise)
    timings = run(simulation, loading_s=0.004, clock=clock)
    assert clock.name == "host perf_counter, one batch at a time" and HostClock().name == "host perf_counter"
    for timing in timings:
        assert timing.loader_wait_s == timing.data_wait_s == pytest.approx(0.004), "the device stands idle while a batch is loaded"
        assert timing.total_s - timing.data_wait_s == pytest.approx(HOST_LAUNCH + STEP), "nothing queues before it or behind it"
        assert timing.h2d_s == pytest.approx(HOST_LAUNCH), "what the host takes to launch the copy"
    assert simulation.device_free_at == simulation.host == pytest.approx(20 * (0.004 + HOST_LAUNCH + STEP))
    assert simulation.deepest <= STEP, "never more than the step itself"


def test_what_waits_for_the_host_is_not_what_the_loader_takes() -> None:
    simulation = Simulation()
    clock = EventClock(simulation.event, lambda: torch.zeros(()), now=lambda: simulation.host)
    learner = Learner(simulation)
    clock.begin()
    timings: list[StepTiming] = []

    def record(timing: StepTiming) -> None:  # a journal, or Python, that takes longer than the device's step
        simulation.host += 0.1
        timings.append(timing)

    def batches() -> Iterator[dict[str, Any]]:
        while True:
            yield {}

    run_steps(range(1, 21), batches(), learner, clock, record)
    late = timings[8:15]
    assert all(timing.data_wait_s > 0.08 for timing in late), "the device waits for the host"
    assert all(timing.loader_wait_s == 0 for timing in late), "and the loader has nothing to do with it"


def test_a_clock_that_is_not_told_of_the_loader_does_not_guess() -> None:
    clock = HostClock()
    clock.begin()
    for mark in range(UPDATE + 1):
        clock.mark(mark)
    assert clock.finish(1, 1, torch.tensor(0.0))[0].loader_wait_s is None
