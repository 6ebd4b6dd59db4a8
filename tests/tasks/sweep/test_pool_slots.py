"""How many trials a pool takes at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cluster.pools.node_locks import NodeLocks
from cluster.pools.pool import load_pools
from tasks.sweep.pool_slots import PoolSlots
from tests.tasks.plan_support import make_trial


@pytest.mark.parametrize(
    ("fields", "devices", "total", "needed"),
    [
        ({"nodes": 4, "exclusive": True, "accelerators_per_node": 8}, [1, 8, 16, 32], 4, [1, 1, 2, 4]),
        ({"nodes": 4, "exclusive": True, "accelerators_per_node": 8}, [64], 4, [4]),  # never more than there are
        ({"nodes": 1, "exclusive": False, "accelerators_per_node": 8}, [1, 2], 4, [1, 1]),
        ({"nodes": 2, "exclusive": False, "accelerators_per_node": 8}, [3], 5, [1]),
        ({"nodes": 3, "exclusive": False}, [2], 3, [1]),
        ({"nodes": 1, "exclusive": False, "accelerators_per_node": 1}, [4], 1, [1]),
    ],
)
def test_slots_of_a_pool_and_how_many_a_trial_takes(fields: dict[str, Any], devices: list[int], total: int, needed: list[int]) -> None:
    trials = [make_trial(number, parameters={"devices": count}) for number, count in enumerate(devices, 1)]
    other = make_trial(99, pool="other", parameters={"devices": 1000})
    pool = load_pools()["cpu"].model_copy(update={"accelerators_per_node": None, **fields})
    slots = PoolSlots(pool, [*trials, other])
    assert slots.total == total
    assert [slots.needed(trial) for trial in trials] == needed


def test_a_trial_holds_the_slots_that_it_needs_and_hears_where_they_are_taken() -> None:
    trial = make_trial(1, parameters={"devices": 16})
    pool = load_pools()["cpu"].model_copy(update={"nodes": 3, "exclusive": True, "accelerators_per_node": 8})
    slots, waits = PoolSlots(pool, [trial]), list[str]()
    with slots.hold(trial, threading.Event(), lambda: pytest.fail("all are free")):
        with NodeLocks(pool, 3, 1, threading.Event(), lambda: pytest.fail("one of three is free")):
            pass
        stop = threading.Event()
        with slots.hold(trial, stop, lambda: (waits.append("taken"), stop.set())[0]):
            assert waits == ["taken"]
