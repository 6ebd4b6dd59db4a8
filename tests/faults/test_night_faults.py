"""Nights and the calendar, nights and pools (rows 20 and 22 of the fault matrix; row 21 is in tests/integration/test_nightly.py)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import yaml
from filelock import FileLock, Timeout

from cluster.pools.node_locks import NodeLocks, hardware
from cluster.pools.pool import load_pools
from experiments.config.paths import runs_root
from tests.cli_support import ROOT, environment

pytestmark = pytest.mark.fault


def schedule() -> dict[str, str]:
    """The deployment's, as prefect.yaml has it."""
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    [nightly] = [entry for entry in deployments if entry["name"] == "regression"]
    [found] = nightly["schedules"]
    return dict(found)


def fires(cron: str, timezone: str, start: datetime, days: int) -> list[datetime]:
    """When Prefect itself would start it."""
    from prefect.server.schemas.schedules import CronSchedule

    dates = CronSchedule(cron=cron, timezone=timezone).get_dates(n=days + 5, start=start, end=start + timedelta(days=days))
    return [datetime.fromtimestamp(date.timestamp(), UTC) for date in asyncio.run(dates)]


@pytest.mark.parametrize("day", [datetime(2027, 3, 7, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC), datetime(2027, 3, 21, tzinfo=UTC)])
def test_row_20_one_night_for_each_date_across_daylight_saving(day: datetime) -> None:
    found = schedule()
    assert found["timezone"] == "UTC"
    times = fires(found["cron"], found["timezone"], day, 14)
    assert [time.date() for time in times] == [(day + timedelta(days=number)).date() for number in range(14)]
    assert {(time.hour, time.minute) for time in times} == {(2, 0)}
    gaps = {b - a for a, b in pairwise(times)}
    assert gaps == {timedelta(hours=24)}


def test_row_20_the_fault_is_real_in_a_local_time() -> None:
    """Half past two in New York does not exist on 14 March 2027: what the schedule would do there is not what it says."""
    times = fires("30 2 * * *", "America/New_York", datetime(2027, 3, 12, tzinfo=UTC), 5)
    local = [time.astimezone(ZoneInfo("America/New_York")) for time in times]
    assert any((time.hour, time.minute) != (2, 30) for time in local) or len({b - a for a, b in pairwise(times)}) > 1


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
    entered, stop = threading.Event(), threading.Event()

    def wait_for_it() -> None:
        with NodeLocks(load_pools()["cpu"], 1, 1, stop):
            entered.set()

    waiter = threading.Thread(target=wait_for_it)
    waiter.start()
    assert not entered.wait(1.2)  # no overlap
    os.kill(holder.pid, signal.SIGKILL)
    assert holder.wait() == -signal.SIGKILL
    before = time.monotonic()
    assert entered.wait(10) and time.monotonic() - before < 5
    waiter.join()
    holder.stdout.close()
