"""Which processes are the trial's and what they used, over a table of processes that the tests write."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from cluster.process_marks import MARK
from cluster.sampler import trial_processes
from cluster.sampler.trial_processes import TrialProcesses

WORKER = 100


class Table:
    """Processes by id; each {parent, mark, own, children}. `now`: s."""

    def __init__(self) -> None:
        self.now = 0.0
        self.processes: dict[int, dict[str, Any]] = {}
        self.reads = 0

    def add(self, pid: int, parent: int, mark: str | None = None, own: float = 0.0, children: float = 0.0) -> None:
        self.processes[pid] = {"parent": parent, "mark": mark, "own": own, "children": children}

    def end(self, pid: int, waited_for: bool = True) -> None:
        """The parent gets the child's time, if it waits for it."""
        one = self.processes.pop(pid)
        if waited_for and one["parent"] in self.processes:
            self.processes[one["parent"]]["children"] += one["own"] + one["children"]

    def process(self, pid: int) -> Any:
        if pid not in self.processes:
            raise psutil.NoSuchProcess(pid)

        def times() -> SimpleNamespace:
            if pid not in self.processes:
                raise psutil.NoSuchProcess(pid)
            one = self.processes[pid]
            return SimpleNamespace(user=one["own"], system=0.0, children_user=one["children"], children_system=0.0)

        def environ() -> dict[str, str]:
            self.reads += 1
            if self.processes[pid]["mark"] == "another user's":
                raise psutil.AccessDenied(pid)
            return {MARK: self.processes[pid]["mark"]} if self.processes[pid]["mark"] else {}

        return SimpleNamespace(ppid=lambda: self.processes[pid]["parent"], environ=environ, cpu_times=times)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    table = Table()
    monkeypatch.setattr(trial_processes.psutil, "pids", lambda: list(table.processes))
    monkeypatch.setattr(trial_processes.psutil, "Process", table.process)
    table.add(1, 0)
    table.add(50, 1, own=1000.0)  # the flow
    table.add(WORKER, 50, "key", own=7.0, children=2.0)
    return table


def follow(table: Table) -> TrialProcesses:
    return TrialProcesses("key", WORKER, lambda: table.now)


def test_marked_processes_and_descendants_are_the_trials(table: Table) -> None:
    table.add(101, WORKER)  # without the mark, but a child
    table.add(102, 1, "key")  # left the tree, but marked
    table.add(103, 1, "other key")
    table.add(104, 1, "another user's")
    table.add(os.getpid(), 1)  # the sampler itself
    assert follow(table).pids == {WORKER, 101, 102, os.getpid()}


def test_time_before_the_start_does_not_count(table: Table) -> None:
    processes = follow(table)
    assert processes.used_s() == 0.0
    table.processes[WORKER]["own"] += 0.3
    table.processes[50]["own"] += 5.0
    assert processes.used_s() == pytest.approx(0.3)


def test_a_child_counts_from_its_start_although_it_is_found_later(table: Table) -> None:
    processes = follow(table)
    table.add(101, WORKER, own=0.25)
    table.now = 0.99
    assert processes.used_s() == 0.0  # not looked for yet
    table.now = 1.0
    assert processes.used_s() == pytest.approx(0.25)
    assert 101 in processes.pids


def test_a_child_that_ends_counts_once_with_what_it_used_after_its_last_reading(table: Table) -> None:
    table.add(101, WORKER)
    processes = follow(table)
    table.processes[101]["own"] = 4.0
    assert processes.used_s() == pytest.approx(4.0)
    table.processes[101]["own"] = 4.5
    table.end(101)
    assert processes.used_s() == pytest.approx(4.5)
    assert processes.pids == {WORKER}


def test_a_grandchilds_time_goes_up_the_tree_and_counts_once(table: Table) -> None:
    table.add(101, WORKER)
    table.add(102, 101)
    processes = follow(table)
    table.processes[101]["own"], table.processes[102]["own"] = 1.0, 2.0
    table.processes[101]["children"] = 0.25  # of one that nobody saw
    assert processes.used_s() == pytest.approx(3.25)
    table.end(102)
    assert processes.used_s() == pytest.approx(3.25)
    table.end(101)
    assert processes.used_s() == pytest.approx(3.25)
    table.processes[WORKER]["own"] += 0.5
    assert processes.used_s() == pytest.approx(3.75)


def test_a_child_that_is_waited_for_between_two_readings_is_put_right_by_the_next(table: Table) -> None:
    table.add(101, WORKER)
    processes = follow(table)
    table.processes[101]["own"] = 4.0
    table.processes[WORKER]["children"] += 4.0  # the worker is read after, the child before it
    assert processes.used_s() == pytest.approx(8.0)
    table.processes.pop(101)
    assert processes.used_s() == pytest.approx(4.0)
    table.processes[WORKER]["children"] += 1.0
    assert processes.used_s() == pytest.approx(5.0)


def test_a_child_that_was_never_seen_counts_when_it_has_been_waited_for(table: Table) -> None:
    processes = follow(table)
    table.processes[WORKER]["children"] += 0.8
    assert processes.used_s() == pytest.approx(0.8)


def test_an_orphans_time_stays_counted(table: Table) -> None:
    table.add(102, 1, "key")
    processes = follow(table)
    table.processes[102]["own"] = 3.0
    assert processes.used_s() == pytest.approx(3.0)
    table.end(102, waited_for=False)
    assert processes.used_s() == pytest.approx(3.0)


def test_each_process_is_looked_at_twice(table: Table) -> None:
    table.add(103, 1, "other key")
    processes = follow(table)
    assert table.reads == 3  # 1, the flow, 103
    for second in range(1, 5):
        table.now = float(second)
        processes.used_s()
    assert table.reads == 6
    table.end(103)
    table.now = 5.0
    processes.used_s()
    table.add(103, 1, "key", own=0.5)  # the id again, for another process
    table.now = 6.0
    assert processes.used_s() == pytest.approx(0.5)


def test_a_process_that_is_seen_before_its_exec_is_the_trials_after_it(table: Table) -> None:
    processes = follow(table)
    table.add(105, 1)
    table.now = 1.0
    processes.used_s()
    table.processes[105] |= {"mark": "key", "own": 0.5}
    table.now = 2.0
    assert processes.used_s() == pytest.approx(0.5)
