"""How a running sweep is told to stop."""

from __future__ import annotations

from types import SimpleNamespace

from tasks.sweep.sweep_stop import SweepStop
from tests.tasks.plan_support import make_plan, make_trial, saved


def test_the_stop_file_becomes_the_event_that_trials_watch() -> None:
    store = saved(make_plan([make_trial(1)]))
    stop = SweepStop(store)
    seen: list[bool] = []

    def look(timeout: float) -> bool:
        seen.append(stop.is_set())
        if len(seen) == 2:
            store.request_stop("enough")
        return len(seen) == 3

    stop.watch_file(SimpleNamespace(wait=look))  # type: ignore[arg-type]
    assert seen == [False, False, True]


def test_a_stop_with_nothing_running_returns_at_once_and_keeps_the_first_reason() -> None:
    store = saved(make_plan([make_trial(1)]))
    stop = SweepStop(store)
    assert not stop.is_set()
    stop.request("first")
    stop.request("second")
    assert stop.is_set() and stop.event.is_set() and store.stop_reason() == "first"
