"""Which other processes used the cores, over a folder in the form of /proc that the tests write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from cluster.sampler import other_processes
from cluster.sampler.other_processes import COST, LOOK_S, NAMED, OtherProcesses
from cluster.sampler.trial_processes import TrialProcesses

TRIAL = 100


class Proc:
    """Processes in a folder. `now`: s; `cost_s`: CPU time that each look takes."""

    def __init__(self, root: Path) -> None:
        self.root, self.now, self.cost_s, self._spent_s, self._looks = root, 0.0, 0.0, 0.0, 0

    def put(self, pid: int, name: str, parent: int = 1, ticks: tuple[int, int] = (0, 0), began: int = 5, command: str = "") -> None:
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        before = [0] * 9  # pgrp ... cmajflt
        fields = ["S", parent, *before, *ticks, 0, 0, 20, 0, 1, 0, began, 4096]
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}\n")
        (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")

    def process_time(self) -> float:
        """Asked before and after a look."""
        self._looks += 1
        self._spent_s += self.cost_s if self._looks % 2 == 0 else 0.0
        return self._spent_s


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proc:
    proc = Proc(tmp_path)
    monkeypatch.setattr(other_processes, "_PROC", tmp_path)
    monkeypatch.setattr(other_processes.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(other_processes.time, "process_time", proc.process_time)
    (tmp_path / "meminfo").write_text("no process")
    proc.put(TRIAL, "python", ticks=(500, 0))
    return proc


def source_of(proc: Proc, *own: int) -> OtherProcesses:
    trial = SimpleNamespace(pids=frozenset({TRIAL, *own}))
    return OtherProcesses(trial, TRIAL, lambda: proc.now)  # type: ignore[arg-type]


def test_the_busiest_come_first_with_what_they_used_since_the_look_before(proc: Proc) -> None:
    proc.put(7, "stress) b 1", ticks=(1000, 50))
    proc.put(8, "cc1", ticks=(10, 0))
    proc.put(9, "cron", ticks=(90, 0))
    source = source_of(proc)
    assert source.read() is None, "it is not time for a look"
    proc.now = LOOK_S
    proc.put(7, "stress) b 1", ticks=(1020, 60))
    proc.put(8, "cc1", ticks=(50, 0))
    proc.put(TRIAL, "python", ticks=(900, 0))
    assert source.read() == {
        "seconds": 0.5,
        "processes": [
            {"pid": 8, "name": "cc1", "cpu_s": 0.4, "sweep": False},
            {"pid": 7, "name": "stress? b 1", "cpu_s": 0.3, "sweep": False},
        ],
    }
    proc.now += LOOK_S - 0.01
    assert source.read() is None
    proc.now += 0.01
    assert source.read() == {"seconds": 0.5, "processes": []}


def test_what_is_new_counts_from_its_start_also_under_the_id_of_another(proc: Proc) -> None:
    proc.put(7, "old", ticks=(1000, 0), began=5)
    source = source_of(proc)
    proc.now = 1.0
    proc.put(7, "new", ticks=(40, 0), began=99)
    proc.put(8, "newer", ticks=(30, 0))
    reading = source.read()
    assert reading is not None
    assert [(one["name"], one["cpu_s"]) for one in reading["processes"]] == [("new", 0.4), ("newer", 0.3)]


def test_what_ended_is_left_out(proc: Proc) -> None:
    proc.put(7, "gone")
    source = source_of(proc)
    (proc.root / "7" / "stat").unlink()
    proc.now = 1.0
    assert source.read() == {"seconds": 1.0, "processes": []}


def test_descendants_of_the_trial_are_its_own_though_not_found_yet(proc: Proc) -> None:
    source = source_of(proc)
    proc.put(101, "loader", parent=TRIAL, ticks=(50, 0))
    proc.put(102, "loader", parent=101, ticks=(50, 0))
    proc.put(103, "other", parent=103, ticks=(50, 0))  # no end of parents
    proc.now = 1.0
    reading = source.read()
    assert reading is not None and [one["pid"] for one in reading["processes"]] == [103]


def test_only_so_many_are_named_and_none_that_used_next_to_nothing(proc: Proc) -> None:
    source = source_of(proc)
    for number in range(1, NAMED + 2):
        proc.put(number, "busy", ticks=(number + 1, 0))
    proc.put(50, "idle", ticks=(1, 0))
    proc.now = 1.0
    reading = source.read()
    assert reading is not None and [one["pid"] for one in reading["processes"]] == [6, 5, 4, 3, 2]
    for number in range(1, NAMED + 1):
        (proc.root / str(number) / "stat").unlink()
    proc.put(6, "busy", ticks=(9, 0))
    proc.put(50, "idle", ticks=(2, 0))
    proc.now = 2.0
    reading = source.read()
    assert reading is not None and [one["pid"] for one in reading["processes"]] == [6], "two ticks in a second are named, one is not"


def test_looks_that_take_long_are_rare(proc: Proc) -> None:
    proc.cost_s = 0.01
    source = source_of(proc)
    proc.now = 0.01 / COST - 0.01
    assert source.read() is None
    proc.now += 0.01
    assert source.read() is not None


@pytest.mark.parametrize(
    ("name", "command", "title"),
    [
        ("python3", "/usr/bin/python3 -u -m flows.cli run --set token=secret", "python3 -m flows.cli"),
        ("python", "python -c print('secret')", "python -c"),
        ("python3.11", "python3.11 /home/ada/train.py --key secret", "python3.11 train.py"),
        ("python", "python", "python"),
        ("python3", "python3 -W ignore -X dev -m pytest", "python3 -m pytest"),
        ("stress", "stress --cpu 2", "stress"),
        ("<b>|`a;,", "x", "?b???a??"),
        ("python", f"python {'x' * 99}.py", f"python {'x' * 53}"),
    ],
)
def test_of_python_it_is_said_what_it_runs_and_nothing_else_of_its_command(proc: Proc, name: str, command: str, title: str) -> None:
    source = source_of(proc)
    proc.put(7, name, ticks=(50, 0), command=command)
    proc.now = 1.0
    reading = source.read()
    assert reading is not None and [one["name"] for one in reading["processes"]] == [title]


@pytest.mark.parametrize("forked", [True, False])
def test_what_is_of_the_sweep_itself_is_marked(proc: Proc, forked: bool) -> None:
    """The flow is 50, whose parent is a shell; the trial's process is its child, or its template's."""
    proc.put(50, "python", parent=40)
    proc.put(60, "python", parent=50, command="python -m cluster.worker.template --channel 4")
    proc.put(TRIAL, "python", parent=60 if forked else 50)
    source = source_of(proc)
    proc.put(40, "sh", ticks=(10, 0))
    proc.put(41, "other", parent=40, ticks=(20, 0))
    proc.put(50, "python", parent=40, ticks=(50, 0))
    proc.put(51, "server", parent=50, ticks=(40, 0))
    proc.put(60, "python", parent=50, ticks=(30, 0), command="python -m cluster.worker.template --channel 4")
    proc.now = 1.0
    reading = source.read()
    assert reading is not None
    assert [(one["pid"], one["sweep"]) for one in reading["processes"]] == [(50, True), (51, True), (60, True), (41, False), (40, False)]


def test_of_an_orphaned_trial_the_sweep_is_not_known(proc: Proc) -> None:
    source = source_of(proc)
    proc.put(7, "busy", ticks=(50, 0))
    proc.now = 1.0
    reading = source.read()
    assert reading is not None and [one["sweep"] for one in reading["processes"]] == [False]


@pytest.fixture
def spinning() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process.pid
        process.kill()


def test_a_process_of_this_machine_is_seen(spinning: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It used what its processor clock says, to the tick."""
    monkeypatch.setattr(other_processes, "LOOK_S", 0.0)
    monkeypatch.setattr(other_processes, "SMALL", 0.0)
    monkeypatch.setattr(other_processes, "NAMED", 10_000)
    trial = SimpleNamespace(pids=frozenset({1_000_000_000}))
    source = OtherProcesses(trial, 1)  # type: ignore[arg-type]
    source._next_at = 0.0
    begun = _cpu_s(spinning)
    while _cpu_s(spinning) < begun + 0.1:
        os.sched_yield()
    reading = source.read()
    assert reading is not None
    one = next(one for one in reading["processes"] if one["pid"] == spinning)
    assert 0.08 <= one["cpu_s"] <= _cpu_s(spinning) + 0.02
    assert one["name"].endswith(" -c")


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def test_it_fits_what_finds_the_trials_processes() -> None:
    assert OtherProcesses(TrialProcesses("key", os.getpid()), os.getpid()).missing() == {}
