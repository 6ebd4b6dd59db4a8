"""The processes of one trial on this machine, and the CPU time that they have used together.

A process is the trial's if it carries the trial's mark (cluster/process_marks.py) or descends from one that is. The table of processes is
looked through once a second, and each new process twice, since it may be seen
between its fork and its exec. In between only the trial's own processes are read.
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
    """A process of the trial, and its CPU times at the last reading, in s: its own, and those of the children that it has waited for."""

    handle: psutil.Process
    parent: int
    own_s: float = 0.0
    children_s: float = 0.0
    children_at_first_s: float = 0.0
    followed_s: float = 0.0  # of children_s: what is counted already, as those children's own

    @property
    def unseen_s(self) -> float:
        """Time of children that ended before anybody looked, or after the last look."""
        return max(0.0, self.children_s - self.children_at_first_s - self.followed_s)


class TrialProcesses:
    """Follows the processes of the trial `key`, of which `worker` (process id) is one."""

    def __init__(self, key: str, worker: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._key, self._worker, self._clock = key, worker, clock
        self._seen: set[int] = set()  # at the last look
        self._settled: set[int] = set()  # at the last two: what they are will not change
        self._own: dict[int, _Process] = {}
        self._used_s = 0.0  # by processes themselves, and by unseen children of those that have ended
        self._look()
        for process in self._own.values():  # counting begins here
            process.own_s, process.children_s = _times(process.handle) or (0.0, 0.0)
            process.children_at_first_s = process.children_s

    @property
    def pids(self) -> frozenset[int]:
        """Process ids, as of the last reading."""
        return frozenset(self._own)

    def used_s(self) -> float:
        """CPU time that they have used since this object was made, in s.

        The time of a child that was not seen counts once its parent has waited for it. A child that its parent waits for between the
        readings of the two counts twice until the next call, so the value may also fall.
        """
        if self._clock() - self._looked_at >= LOOK_S:
            self._look()
        for pid, process in list(self._own.items()):
            times = _times(process.handle)
            if times is None:
                self._forget(pid)
                continue
            self._used_s += max(0.0, times[0] - process.own_s)
            process.own_s, process.children_s = times
        return self._used_s + sum(process.unseen_s for process in self._own.values())

    def _forget(self, pid: int) -> None:
        """A process has ended. What is counted of it comes to its parent's `children_s` as well."""
        process = self._own.pop(pid)
        self._used_s += process.unseen_s
        parent = self._own.get(process.parent)
        if parent is not None:
            parent.followed_s += process.own_s + process.children_s

    def _look(self) -> None:
        self._looked_at = self._clock()
        pids = set(psutil.pids())
        for pid in sorted(pids - self._settled - self._own.keys()):
            try:
                handle = psutil.Process(pid)
                parent = handle.ppid()
                if pid in (self._worker, os.getpid()) or parent in self._own or handle.environ().get(MARK) == self._key:
                    self._own[pid] = _Process(handle, parent)
            except (psutil.Error, OSError):
                continue  # it has ended, or belongs to another user
        self._settled = pids & self._seen
        self._seen = pids


def _times(handle: psutil.Process) -> tuple[float, float] | None:
    """CPU seconds of a process and of its ended children; None once it is gone."""
    try:
        times = handle.cpu_times()
    except (psutil.Error, OSError):
        return None
    return times.user + times.system, times.children_user + times.children_system
