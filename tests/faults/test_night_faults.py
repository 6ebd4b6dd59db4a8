"""Nights and the calendar, nights and pools (rows 20 and 22 of the fault matrix; row 21 is in tests/integration/test_nightly.py)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
import yaml
from filelock import FileLock, Timeout

from cluster.pools.node_locks import NodeLocks, hardware
from cluster.pools.pool import load_pools
from experiments.config.paths import runs_root
from tasks.nightly.store import today
from tests.cli_support import ROOT, environment

pytestmark = pytest.mark.fault


def nightly_deployment() -> dict[str, Any]:
    """As prefect.yaml has it."""
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    [found] = [entry for entry in deployments if entry["name"] == "regression"]
    return dict(found)


def test_row_20_the_schedule_starts_once_on_every_utc_date() -> None:
    """One minute of one hour of every day, counted where each day has 24 hours: none is left out and none comes twice."""
    deployment = nightly_deployment()
    [schedule] = deployment["schedules"]
    assert set(schedule) == {"cron", "timezone"} and schedule["timezone"] == "UTC"
    minute, hour, *days = schedule["cron"].split()
    assert days == ["*", "*", "*"]
    assert (int(minute), int(hour)) == (0, 2)
    assert "date" not in deployment["parameters"]  # each start takes its own


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's clock is shown in a zone with daylight saving, five or four hours behind UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize("changed", [date(2027, 3, 14), date(2026, 11, 1)])
def test_row_20_each_start_is_the_night_of_its_utc_date_when_clocks_change(changed: date, monkeypatch: pytest.MonkeyPatch) -> None:
    minute, hour, *_ = nightly_deployment()["schedules"][0]["cron"].split()
    first = datetime(changed.year, changed.month, changed.day, int(hour), int(minute), tzinfo=UTC) - timedelta(days=2)
    starts = [first + timedelta(days=number) for number in range(5)]
    local = [start.astimezone() for start in starts]
    assert len({start.utcoffset() for start in local}) == 2  # the fault is there: clocks change in between
    assert all(here.date() < start.date() for here, start in zip(local, starts, strict=True))  # and the local date is another

    class Clock(datetime):
        moment = first

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return cls.moment.astimezone(tz)

    monkeypatch.setattr("tasks.nightly.store.datetime", Clock)
    nights = []
    for Clock.moment in starts:
        nights.append(today())
    assert nights == [(changed + timedelta(days=days)).isoformat() for days in range(-2, 3)]


_HOLDER = """
import threading
from cluster.pools.pool import load_pools
from cluster.pools.node_locks import NodeLocks
with NodeLocks(load_pools()["cpu"], 1, 1, threading.Event()):
    print("held", flush=True)
    threading.Event().wait()
"""


def test_row_22_a_place_on_a_pool_has_one_sweep_and_comes_back_when_its_holder_dies(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline().strip() == "held"
    with pytest.raises(Timeout):
        FileLock(runs_root() / ".pools" / f"{hardware(load_pools()['cpu'])}-0.lock").acquire(timeout=0)  # the other sweep has it
    entered, refused, stop = threading.Event(), threading.Event(), threading.Event()

    def wait_for_it() -> None:
        with NodeLocks(load_pools()["cpu"], 1, 1, stop, busy=refused.set):
            entered.set()

    waiter = threading.Thread(target=wait_for_it)
    waiter.start()
    try:
        for _ in range(2):  # no overlap, however often it asks
            assert refused.wait(120)
            refused.clear()
        assert not entered.is_set()
        os.kill(holder.pid, signal.SIGKILL)
        assert holder.wait() == -signal.SIGKILL
        assert entered.wait(120) and not stop.is_set()
    finally:
        stop.set()
        waiter.join()
        holder.kill()
        holder.communicate()
