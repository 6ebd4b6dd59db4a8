"""For how long a sweep only waited for others."""

from __future__ import annotations

from tasks.sweep.deadline import Deadline
from tasks.sweep.slot_waits import SlotWaits


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_counts_while_some_wait_for_others_and_none_runs() -> None:
    clock = Clock()
    waits = SlotWaits(clock)
    assert waits.seconds == 0.0
    waits.waits("a", ["x"])
    clock.now += 3.0
    waits.waits("a", ["x", ""])  # it is told each time that it asks
    clock.now += 2.0
    assert waits.seconds == 5.0, "also while it waits"
    waits.runs("a")
    waits.waits("b", ["y"])
    clock.now += 10.0
    assert waits.seconds == 5.0, "a trial of it runs meanwhile"
    waits.over("a")
    clock.now += 1.0
    assert waits.seconds == 6.0
    waits.waits("b", [])  # its own sweep's slots now
    clock.now += 10.0
    waits.waits("b", ["y"])
    clock.now += 4.0
    waits.over("b")  # stopped before it began
    clock.now += 10.0
    assert (waits.seconds, waits.holders) == (10.0, {"x", "y"})


def test_a_deadline_is_so_much_later() -> None:
    clock = Clock()
    ends = Deadline(160.0, {}, clock=clock, waits=SlotWaits(clock))
    assert ends.left_s == 60.0
    ends.waits.waits("a", ["x"])
    clock.now += 50.0
    assert ends.left_s == 60.0
    ends.waits.runs("a")
    clock.now += 50.0
    assert ends.left_s == 10.0
