"""The processes of one trial on this machine, and the CPU time that they have used together.

A process is the trial's if it carries the trial's mark (cluster/process_marks.py) or descends from one that is. The table of processes is
looked through once a second, and each new process once. In between only the trial's own processes are read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from cluster.process_marks import MARK

LOOK_S = 1.0  # between two looks for new processes


@dataclass
class _Process:
    """A process of the trial and its CPU time at the last reading, in s: its own, and that of its children that have ended."""

    handle: psutil.Process
    parent: int
    own_s: float = 0.0
    children_s: float = 0.0
    expected_s: float = 0.0  # counted already, of children that were gone at the last reading and are not yet in children_s


class TrialProcesses:
    """Follows the processes of the trial `key`, of which `worker` (process id) is one."""

    def __init__(self, key: str, worker: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._key, self._worker, self._clock = key, worker, clock
        self._seen: set[int] = set()
        self._own: dict[int, _Process] = {}
        self._used_s = 0.0
        self._looked_at = -1e9
        self._look()
        for process in self._own.values():  # counting begins here
            process.own_s, process.children_s = _times(process.handle) or (0.0, 0.0)

    @property
    def pids(self) -> frozenset[int]:
        """Process ids, as of the last reading."""
        return frozenset(self._own)

    def used_s(self) -> float:
        """CPU time that they have used since this object was made, in s.

        The time of a child that was not seen counts once its parent has waited for it.
        """
        if self._clock() - self._looked_at >= LOOK_S:
            self._look()
        for pid, process in list(self._own.items()):
            times = _times(process.handle)
            if times is None:
                self._forget(pid)
                continue
            own_s, children_s = times
            self._used_s += max(0.0, own_s - process.own_s)
            ended_s = max(0.0, children_s - process.children_s)
            counted_s = min(process.expected_s, ended_s)
            process.expected_s -= counted_s
            self._used_s += ended_s - counted_s
            process.own_s, process.children_s = own_s, children_s
        return self._used_s

    def _forget(self, pid: int) -> None:
        """A process has ended. Its parent's `children_s` will grow by what has been counted of it already."""
        process = self._own.pop(pid)
        parent = self._own.get(process.parent)
        if parent is not None:
            parent.expected_s += process.own_s + process.children_s

    def _look(self) -> None:
        self._looked_at = self._clock()
        pids = set(psutil.pids())
        for pid in sorted(pids - self._seen):
            try:
                handle = psutil.Process(pid)
                parent = handle.ppid()
                if pid in (self._worker, os.getpid()) or parent in self._own or handle.environ().get(MARK) == self._key:
                    self._own[pid] = _Process(handle, parent)
            except (psutil.Error, OSError):
                continue  # it has ended, or belongs to another user
        self._seen = pids


def _times(handle: psutil.Process) -> tuple[float, float] | None:
    """CPU seconds of a process and of its ended children; None once it is gone."""
    try:
        times = handle.cpu_times()
    except (psutil.Error, OSError):
        return None
    return times.user + times.system, times.children_user + times.children_system
