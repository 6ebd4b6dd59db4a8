"""Find and end every process of a trial on this machine, including those that left its session or were adopted by init.

Each process of a trial inherits the environment variable SWEEPBENCH_TRIAL=<key>. The search uses this variable, not the process tree.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from typing import NamedTuple

import psutil

from cluster.process_marks import MARK
from cluster.process_variables import variables

# A detached actor that a cluster's first trial starts for all that follow, with its own environment; Ray restarts it when it is killed
_OF_THE_CLUSTER = "ray::_AutoscalingCoordinatorActor"
END_POLL_S = 0.02


def of_trial(key: str) -> list[psutil.Process]:
    """Processes on this machine that carry the trial's mark."""
    marked = []
    for process in psutil.process_iter():
        try:
            if variables(process).get(MARK) == key and not of_the_cluster(process):
                marked.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess, OSError):
            continue  # it has ended, or belongs to another user
    return marked


class First(NamedTuple):
    """`born`: start time, Unix s."""

    pid: int
    born: float


def first_of(key: str) -> First | None:
    """The process of the trial on this machine that started the others; None if there is none. It may not have begun its journal."""
    parents: dict[int, tuple[float, int]] = {}
    for process in of_trial(key):
        with suppress(psutil.NoSuchProcess):
            if not _over(process):
                parents[process.pid] = process.create_time(), process.ppid()
    firsts = [First(pid, born) for pid, (born, parent) in parents.items() if parent not in parents]
    return min(firsts, key=lambda first: (first.born, first.pid), default=None)


def of_the_cluster(process: psutil.Process) -> bool:
    """True for a process that carries a trial's mark and serves the whole Ray cluster."""
    return "".join(process.cmdline()[:1]).startswith(_OF_THE_CLUSTER)


def end_all(key: str, wait_s: float = 5.0) -> int:
    """Kill every process of the trial and wait until all have ended. Returns how many there were."""
    count = 0
    for _ in range(20):  # a process killed while it forks leaves a child
        processes = of_trial(key)
        if not processes:
            break
        count += len(processes)
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        deadline = time.monotonic() + wait_s
        while any(_uses_something(process) for process in processes) and time.monotonic() < deadline:
            time.sleep(END_POLL_S)
    return count


def _uses_something(process: psutil.Process) -> bool:
    """True until the process has ended. Its parent may take long to notice that: Ray does so once a second."""
    try:
        return process.is_running() and not _over(process)
    except psutil.NoSuchProcess:
        return False


def start_time(pid: int) -> float | None:
    """When the process started, Unix s; None if it is over already."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


def alive(pid: int, born: float | None) -> bool:
    """True if `pid` runs and is the process that started at `born` (Unix time, s), as `start_time` gave it: None was over already."""
    if born is None:
        return False  # whatever has its id now is another one
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - born) < 1.0 and not _over(process)
    except psutil.NoSuchProcess:
        return False


def wait_for_end(pid: int, born: float | None, timeout_s: float) -> bool:
    """Wait until `alive(pid, born)` no longer holds, at most `timeout_s`. Whether it has ended; its parent may not know yet."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ends = select.poll()  # unlike select, for any number of open files
        ends.register(descriptor, select.POLLIN)
        return not alive(pid, born) or bool(ends.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def _over(process: psutil.Process) -> bool:
    """True for a process that has ended and that its parent has not waited for. Raises psutil.NoSuchProcess."""
    # The first thread of a process that is being ended is a zombie while the others still run; its parent cannot reap it yet
    return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
