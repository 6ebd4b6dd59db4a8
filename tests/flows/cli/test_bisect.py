"""`sweep bisect` while another sweep measures on the pool. What it measures: tests/integration/test_bisect_process.py."""

from __future__ import annotations

import threading

import pytest

from cluster.pools.node_locks import NodeLocks
from cluster.pools.pool import load_pools
from flows.cli import bisect


def test_it_says_once_whom_it_waits_for_and_is_named_itself_to_those_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, never, said = load_pools()["cpu"], threading.Event(), list[str]()
    other = NodeLocks(pool, 1, 1, never, holder="sweep another")
    assert other.take()

    asked: list[float] = []

    class Asks(threading.Event):
        """It waits in no time, and asks three times before it gets the slot."""

        def wait(self, timeout: float | None = None) -> bool:
            asked.append(timeout or 0.0)
            if len(asked) == 3:
                other.give_back()
            return False

    monkeypatch.setattr(bisect, "Event", Asks)
    with bisect._slot(pool, said.append):
        assert not other.take() and other.others == ["`sweep bisect`"]
    assert said == ["pool cpu: in use by sweep another, which this one waits for"] and len(asked) == 3
