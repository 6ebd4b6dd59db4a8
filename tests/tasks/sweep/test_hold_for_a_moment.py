"""A trial that a dead command left takes its lock for a moment when it goes on: the next command's head start waits for that."""

from __future__ import annotations

import threading
import time

import pytest
from filelock import FileLock, Timeout

from cluster.launchers.local import LocalLauncher
from cluster.pools.pool import load_pools
from tasks.sweep.head_start import HeadStart
from tasks.sweep.pool_slots import PoolSlots
from tests.tasks.plan_support import make_plan, make_trial, saved


def test_a_hold_that_an_earlier_process_of_the_trial_takes_for_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, pool = make_plan([make_trial(1)]), load_pools()["cpu"]
    store, trial = saved(plan), plan.trials[0]
    slots = PoolSlots(pool, plan.trials).hold(trial, threading.Event(), lambda: None)
    path = store.trial_dir(trial.key) / ".hold"
    moment = FileLock(path)
    moment.acquire(timeout=0)
    with monkeypatch.context() as waits:
        waits.setattr(time, "sleep", lambda seconds: moment.release())  # before the lock is asked for again
        head = HeadStart(store, trial, LocalLauncher(pool), slots, held=True)
    with pytest.raises(Timeout):
        FileLock(path).acquire(timeout=0)
    head.end("over")
    with FileLock(path).acquire(timeout=0):
        assert not moment.is_locked, "nobody holds it any more"
