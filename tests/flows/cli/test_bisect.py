"""`sweep bisect` while another sweep measures on the pool. What it measures: tests/integration/test_bisect_process.py."""

from __future__ import annotations

import threading

from cluster.pools.node_locks import NodeLocks
from cluster.pools.pool import load_pools
from flows.cli.bisect import _slot


def test_it_says_once_whom_it_waits_for_and_is_named_itself_to_those_that_wait_for_it() -> None:
    pool, never, said = load_pools()["cpu"], threading.Event(), list[str]()
    other = NodeLocks(pool, 1, 1, never, holder="sweep another")
    assert other.take()

    def say(text: str) -> None:
        said.append(text)
        threading.Timer(1.0, other.give_back).start()  # it has asked again by then

    with _slot(pool, say):
        assert not other.take() and other.others == ["`sweep bisect`"]
    assert said == ["pool cpu: in use by sweep another, which this one waits for"]
