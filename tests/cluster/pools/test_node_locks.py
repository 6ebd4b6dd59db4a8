"""Row 22: two sweeps on one pool never hold the same place, and a holder that dies gives its place back."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.pools.node_locks import NodeLocks, hardware
from cluster.pools.pool import Pool, load_pools
from tests.cluster.pools.pool_support import pool

ROOT = Path(__file__).parents[3]
HOLD = """
import sys, threading, time
from cluster.pools.node_locks import NodeLocks
from cluster.pools.pool import Pool
with NodeLocks(Pool(name="other-name", device="cpu", address="embedded"), 1, 1, threading.Event()):
    print("held", flush=True)
    time.sleep(600)
"""


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
            assert holder.wait(60) == -signal.SIGKILL
    finally:
        holder.kill()
        holder.communicate()


WIDE = {"address": "http://h:1", "nodes": 3, "accelerators_per_node": 8, "resources": {"x": 1}}


def free(nodes: Pool, width: int) -> bool:
    """Whether so many of three places can be had now."""
    stop = threading.Event()
    with NodeLocks(nodes, 3, width, stop, busy=stop.set):
        return not stop.is_set()


def test_a_wide_trial_takes_all_its_places_or_none() -> None:
    nodes, never, stop = pool(**WIDE), threading.Event(), threading.Event()
    seen = []

    def look() -> None:
        seen.append((free(nodes, 1), free(nodes, 2)))
        stop.set()

    with NodeLocks(nodes, 3, 2, never):
        with NodeLocks(nodes, 3, 2, stop, busy=look):
            assert stop.is_set()
        assert seen == [(True, False)], "what it could have had stays free while it waits for the rest"
    assert free(nodes, 3), "all are given back"


def test_no_place_is_had_twice() -> None:
    nodes, never = pool(**WIDE), threading.Event()
    with NodeLocks(nodes, 3, 1, never):
        assert (free(nodes, 2), free(nodes, 3)) == (True, False)
        with NodeLocks(nodes, 3, 2, never):
            assert not free(nodes, 1)
        assert free(nodes, 2)
    with NodeLocks(nodes, 3, 3, never):
        assert not free(nodes, 1)


def test_who_waits_asks_again_until_a_place_is_there_and_stops_when_told() -> None:
    nodes, held = pool(**WIDE), ExitStack()
    held.enter_context(NodeLocks(nodes, 3, 3, threading.Event()))
    waits: list[float] = []
    busy: list[int] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            if len(waits) == 3:
                held.close()
            return False

    with NodeLocks(nodes, 3, 2, Stop(), busy=lambda: busy.append(1)):
        assert not free(nodes, 2)
    assert waits == [0.5] * 3 and len(busy) == 3

    told, called = threading.Event(), []
    told.set()
    with NodeLocks(nodes, 3, 3, told, busy=lambda: called.append(1)):
        assert free(nodes, 3), "it was told to stop before it began, and takes nothing"
    assert not called


def test_places_are_given_back_where_the_block_fails() -> None:
    nodes = pool(**WIDE)
    with pytest.raises(KeyError), NodeLocks(nodes, 3, 3, threading.Event()):
        raise KeyError
    assert free(nodes, 3)


def test_what_is_the_same_hardware() -> None:
    remote = {"address": "http://h:1", "device": "cuda"}
    shared = {"exclusive": False}
    assert hardware(pool(name="a")) == hardware(pool(name="b"))
    apart = (pool(), pool(**shared), pool(device="cuda", **shared), pool(**remote), pool(**remote, accelerator_type="A100"))
    assert len({hardware(found) for found in apart}) == 5
    assert hardware(pool(**remote, resources={"a": 1, "b": 2})) == hardware(pool(**remote, resources={"b": 8, "a": 1}))
    assert hardware(pool(**remote, resources={"a": 1})) != hardware(pool(**remote)) != hardware(pool(address="http://h:2", device="cuda"))
    assert hardware(pool(**remote)).startswith("cuda-")


def test_exclusive_pools_of_this_machine_are_one_node_and_what_a_tunnel_leads_to_is_another() -> None:
    stack = {"address": "http://127.0.0.1:8265", "token_file": ".stack/ray_token"}
    of_stack, embedded = NodeLocks(pool(**stack), 1, 1, threading.Event()), NodeLocks(pool(), 1, 1, threading.Event())
    with embedded:
        assert not of_stack.take()
    with of_stack:
        assert not NodeLocks(pool(device="cuda"), 1, 1, threading.Event()).take()
    tunnel = {"address": "http://127.0.0.1:8267"}
    for other in (tunnel, {**tunnel, "token_file": "a100-token"}, {**stack, "nodes": 2}, {**stack, "exclusive": False}):
        assert hardware(pool(**other)) != hardware(pool()), other
    assert hardware(pool(**stack)) == hardware(pool()) == hardware(load_pools()["local"])


def test_who_waits_learns_who_holds_the_slots() -> None:
    nodes, never = pool(**WIDE), threading.Event()
    mine = NodeLocks(nodes, 3, 3, never, holder="mine")
    assert mine.others == []
    with NodeLocks(nodes, 3, 1, never, holder="theirs"), NodeLocks(nodes, 3, 1, never, holder="mine"):
        assert not mine.take() and mine.others == ["theirs"]
        with NodeLocks(nodes, 3, 1, never):  # such as one of an earlier version
            assert not mine.take() and mine.others == ["", "theirs"]
    with NodeLocks(nodes, 3, 1, never, holder="mine"):
        assert not mine.take() and mine.others == [], "its own sweep has it"
    with NodeLocks(nodes, 3, 3, never):
        assert not mine.take() and mine.others == [""], "what a former holder wrote tells nothing"
    assert mine.take() and mine.others == []
    nameless = NodeLocks(nodes, 3, 3, never)
    assert not nameless.take() and nameless.others == ["mine"]
    mine.give_back()
    with NodeLocks(nodes, 3, 1, never):
        assert not nameless.take() and nameless.others == [""], "it is another one, for all that it knows"


def test_an_address_with_a_slash_at_its_end_is_the_same_hardware(tmp_path: Path) -> None:
    entries = [f"  {name}: {{device: cpu, address: '{url}'}}\n" for name, url in (("a", "http://h:8265"), ("b", "http://h:8265/"))]
    (tmp_path / "pools.yaml").write_text("pools:\n" + "".join(entries))
    pools = load_pools(tmp_path / "pools.yaml")
    assert pools["a"].url() == pools["b"].url() == "http://h:8265"
    assert hardware(pools["a"]) == hardware(pools["b"])


def test_what_is_free_is_taken_at_once_and_kept_until_it_is_given_back() -> None:
    never, nodes = threading.Event(), pool()
    mine, theirs = NodeLocks(nodes, 1, 1, never), NodeLocks(nodes, 1, 1, never)
    assert mine.take() and mine.take()
    assert not theirs.take()
    with mine:  # takes nothing anew
        assert not theirs.take()
    assert theirs.take() and not mine.take()
    theirs.give_back()
    theirs.give_back()
    assert mine.take()
    mine.give_back()
