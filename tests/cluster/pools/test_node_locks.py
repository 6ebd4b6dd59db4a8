"""Row 22: two sweeps on one pool never hold the same place, and a holder that dies gives its place back."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from cluster.pools.node_locks import NodeLocks, hardware
from cluster.pools.pool import Pool

ROOT = Path(__file__).parents[3]
HOLD = """
import sys, threading, time
from cluster.pools.node_locks import NodeLocks
from cluster.pools.pool import Pool
with NodeLocks(Pool(name="other-name", device="cpu", address="embedded"), 1, 1, threading.Event()):
    print("held", flush=True)
    time.sleep(600)
"""


def pool(**values: Any) -> Pool:
    return Pool(**{"name": "p", "device": "cpu", "address": "embedded", **values})


def test_a_place_is_waited_for_and_comes_back_when_its_holder_is_killed() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        waited = threading.Event()

        def kill() -> None:
            if not waited.is_set():
                waited.set()
                holder.send_signal(signal.SIGKILL)

        with NodeLocks(pool(), 1, 1, threading.Event(), busy=kill):
            assert waited.is_set()  # it was held by a pool of another name that is the same machine
            assert holder.wait(10) == -signal.SIGKILL
    finally:
        holder.kill()
        holder.communicate()


def test_a_wide_trial_takes_all_its_places_or_none() -> None:
    never, stop = threading.Event(), threading.Event()
    nodes = pool(address="http://h:1", nodes=3, accelerators_per_node=8, resources={"x": 1})
    with NodeLocks(nodes, 3, 1, never), NodeLocks(nodes, 3, 2, never), NodeLocks(nodes, 3, 1, stop, busy=stop.set):
        assert stop.is_set()  # none was free
    stop.clear()
    with NodeLocks(nodes, 3, 2, never):
        with NodeLocks(nodes, 3, 2, stop, busy=stop.set):
            assert stop.is_set()
        with NodeLocks(nodes, 3, 1, never):  # and what it could have had stayed free
            pass


def test_what_is_the_same_hardware() -> None:
    remote = {"address": "http://h:1", "device": "cuda"}
    assert hardware(pool(name="a")) == hardware(pool(name="b"))
    assert len({hardware(found) for found in (pool(), pool(device="cuda"), pool(**remote), pool(**remote, accelerator_type="A100"))}) == 4
