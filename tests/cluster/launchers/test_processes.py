"""Which processes are a trial's, how all of them are ended, and when a process id is still the process that it was."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from cluster import process_variables
from cluster.launchers import processes
from cluster.launchers.processes import MARK, alive, end_all, of_trial

KEY = "feed000000000001"


class Fake:
    """A process in a table. Kills are written into `killed`; a kill may add `child` to the table."""

    def __init__(self, table: Table, key: str | None, command: str = "python", child: Fake | None = None, error: Exception | None = None):
        self.table, self.key, self.command, self.child, self.error = table, key, command, child, error
        self.kill_error: Exception | None = None
        self.exec_until = 0.0  # s of the table's clock: shows neither variables nor arguments before
        self.bytes = 4096
        self.lingers_s, self.killed_at, self.reaped = 0.0, 1e9, True

    def environ(self) -> dict[str, str]:
        if self.error:
            raise self.error
        if self.table.now < self.exec_until:
            return {}
        return {"PATH": "/bin"} if self.key is None else {MARK: self.key}

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(vms=self.bytes)

    def cmdline(self) -> list[str]:
        if self.table.now < self.exec_until:
            return []
        return [self.command, "ray::_AutoscalingCoordinatorActor"] if self.command else []  # the first word alone counts

    def is_running(self) -> bool:
        return not self.reaped or self.table.now < self.killed_at + self.lingers_s

    def status(self) -> str:
        return psutil.STATUS_ZOMBIE if self.table.now >= self.killed_at + self.lingers_s else psutil.STATUS_RUNNING

    def num_threads(self) -> int:
        return 1

    def kill(self) -> None:
        self.killed_at = self.table.now
        self.table.running.remove(self)
        self.table.killed.append(self)
        if self.child:
            self.table.running.append(self.child)
        if self.kill_error:
            raise self.kill_error


class Table:
    """The processes of a machine, in virtual time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running: list[Fake] = []
        self.killed: list[Fake] = []
        self.now = 0.0
        for module in (processes, process_variables):
            monkeypatch.setattr(module, "time", SimpleNamespace(sleep=self.sleep, monotonic=lambda: self.now))
        monkeypatch.setattr(psutil, "process_iter", lambda: list(self.running))

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:  # undone before others look for processes
        yield Table(patch)


def test_a_trials_processes_carry_its_mark(table: Table) -> None:
    own = [Fake(table, KEY), Fake(table, KEY, command=""), Fake(table, KEY, command="ray::_Other")]
    gone = [psutil.NoSuchProcess(1), psutil.AccessDenied(1), psutil.ZombieProcess(1), OSError("odd")]
    others = [Fake(table, None), Fake(table, "feed000000000002"), Fake(table, KEY, command="ray::_AutoscalingCoordinatorActor.run")]
    table.running = [*(Fake(table, KEY, error=error) for error in gone), own[0], *others, *own[1:]]
    assert of_trial(KEY) == own


def test_all_are_killed_and_what_they_forked_meanwhile(table: Table) -> None:
    grandchild = Fake(table, KEY)
    child = Fake(table, KEY, child=grandchild)
    parent, sibling, other = Fake(table, KEY, child=child), Fake(table, KEY), Fake(table, "feed000000000002")
    parent.kill_error = psutil.NoSuchProcess(1)  # it ended by itself: the others are ended all the same
    table.running = [other, parent, sibling]
    assert end_all(KEY, wait_s=3.0) == 4
    assert table.killed == [parent, sibling, child, grandchild] and table.running == [other]
    assert end_all(KEY) == 0


@pytest.mark.parametrize(("lingers_s", "waits_s"), [(0.0, 0.0), (1.0, 1.0), (60.0, 3.0)])
def test_what_is_killed_is_waited_for_until_it_has_ended(table: Table, lingers_s: float, waits_s: float) -> None:
    """Not until its parent has noticed: Ray does so once a second."""
    slow = Fake(table, KEY)
    slow.lingers_s, slow.reaped = lingers_s, False
    table.running = [slow]
    assert end_all(KEY, wait_s=3.0) == 1
    assert table.now == pytest.approx(waits_s, abs=processes.END_POLL_S)


def test_one_that_changes_its_program_is_not_missed(table: Table) -> None:
    """The only one left, and one that a killed one leaves: each is the reason for which a scan finds nothing."""
    child, other = Fake(table, KEY), Fake(table, "feed000000000002")
    only = Fake(table, KEY, child=child)
    only.exec_until, child.exec_until, other.exec_until = 0.012, 0.5, 0.3
    table.running = [only, other]
    assert end_all(KEY) == 2
    assert table.killed == [only, child] and table.running == [other]
    assert table.now == pytest.approx(0.5, abs=process_variables.EXEC_POLL_S), "no longer than it takes"


def test_a_program_that_arrives_between_two_looks_is_seen(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Fake(table, KEY)
    own.exec_until = 1.0
    arrived = Fake.cmdline

    def cmdline(self: Fake) -> list[str]:
        table.now = 1.0
        return arrived(self)

    monkeypatch.setattr(Fake, "cmdline", cmdline)
    table.running = [own]
    assert of_trial(KEY) == [own]


def test_what_has_no_variables_is_not_waited_for(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernel threads, which have no memory of their own, and programs that were started with an empty environment."""
    monkeypatch.setattr(Fake, "environ", lambda self: {})
    thread = Fake(table, None, command="")
    thread.bytes = 0
    table.running = [thread, Fake(table, None, command="/bin/daemon")]
    assert of_trial(KEY) == [] and table.now == 0.0


def test_one_that_hangs_in_exec_is_waited_for_a_second(table: Table) -> None:
    stuck, own = Fake(table, KEY), Fake(table, KEY)
    stuck.exec_until = 1e9
    table.running = [stuck, own]
    assert of_trial(KEY) == [own] and table.now == pytest.approx(1.0)


def test_one_that_cannot_be_ended_does_not_keep_the_launcher_for_ever(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "kill", lambda self: None)
    table.running = [Fake(table, KEY)]
    assert end_all(KEY, wait_s=0.1) == 20 and table.now == pytest.approx(2.0, abs=20 * processes.END_POLL_S)


def test_a_process_id_used_again_is_another_process() -> None:
    born = psutil.Process().create_time()
    assert alive(os.getpid(), born)
    assert alive(os.getpid(), born + 0.9) and alive(os.getpid(), born - 0.9)  # rounded differently
    assert not alive(os.getpid(), born + 1.1) and not alive(os.getpid(), born - 1.1)
    assert not alive(os.getpid(), None), "it was over before anyone looked at it"
    assert processes.wait_for_end(os.getpid(), None, timeout_s=3600.0)


def test_a_process_that_is_over_is_not_alive_before_its_parent_has_asked() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    born = processes.start_time(child.pid)
    assert born is not None and not alive(child.pid, born)
    child.wait()
    assert processes.start_time(child.pid) is None and not alive(child.pid, born), "there is none of this id"


@pytest.mark.parametrize(
    ("status", "threads", "lives"),
    [
        (psutil.STATUS_SLEEPING, 1, True),
        (psutil.STATUS_ZOMBIE, 2, True),  # its first thread is over, others still run
        (psutil.STATUS_ZOMBIE, 1, False),
        (psutil.STATUS_ZOMBIE, 0, False),
    ],
)
def test_threads_that_run_on_are_alive(monkeypatch: pytest.MonkeyPatch, status: str, threads: int, lives: bool) -> None:
    seen = SimpleNamespace(create_time=lambda: 5.0, status=lambda: status, num_threads=lambda: threads)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "psutil", SimpleNamespace(**{**vars(psutil), "Process": lambda pid: seen}))
        assert alive(1, 5.0) is lives


def test_the_end_of_a_process_is_seen_when_it_comes_and_a_running_one_until_the_time_is_over() -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        born = processes.start_time(process.pid)
        assert not processes.wait_for_end(process.pid, born, timeout_s=0.0)
        assert process.stdin is not None
        process.stdin.close()  # which ends it
        assert processes.wait_for_end(process.pid, born, timeout_s=3600.0), "before its parent has asked"
    assert processes.wait_for_end(process.pid, born, timeout_s=3600.0), "and after that"


def test_a_process_id_that_is_used_again_is_not_waited_for() -> None:
    born = processes.start_time(os.getpid())
    assert born is not None
    assert processes.wait_for_end(os.getpid(), born - 100.0, timeout_s=3600.0)
