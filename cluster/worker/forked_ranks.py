"""Ranks of a trial on one machine, forked from its supervisor: what that inherited from its template they need not import again.

Only a supervisor that has made a trial's imports, opened no device and has one thread forks them; otherwise ranks are fresh processes.
Rank 0 tells what it had to import and count, so that the template learns it, as it does from a trial on one device.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from cluster.worker.template_imports import BASE, Lesson, spoiled
from experiments.atomic_file import atomic_write
from experiments.components import flop_count

POLL_S = 0.02

imported: dict[str, None] = {}  # modules that ranks had to import, in that order, for the template to learn


def can_fork() -> bool:
    """Whether ranks may be forked from this process, and are spared imports by it."""
    return all(name in sys.modules for name in BASE) and spoiled() is None


@dataclass
class ForkedRank:
    """A rank's process, with the methods of subprocess.Popen that a supervisor needs."""

    pid: int
    args: Sequence[str]
    _code: int | None = field(default=None, repr=False)

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        if self._code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if done else None
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status once it has ended. Raises subprocess.TimeoutExpired after `timeout` s."""
        began = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() - began > timeout:
                raise subprocess.TimeoutExpired(list(self.args), timeout)
            time.sleep(POLL_S)
        return code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:  # it has not been waited for, so the number is still its own
            os.kill(self.pid, number)


@dataclass(frozen=True)
class RankEntry:
    """`run`: a rank's entry point, which returns its exit status; `leave` ends a process with it."""

    run: Callable[[list[str]], int]
    leave: Callable[[int], NoReturn]


def fork_rank(
    entry: RankEntry, arguments: list[str], environment: Mapping[str, str], listener: socket.socket, lesson: Path | None
) -> ForkedRank:
    """Fork a rank with these variables. `listener`: the supervisor's alone.

    `lesson`: file in which it says before it ends what it had to import and count; None: it does not.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if pid:
        return ForkedRank(pid, arguments)
    try:
        listener.close()
        os.environ.update(environment)
        learnt = Lesson()
        status = entry.run(arguments)
        if lesson is not None:
            atomic_write(lesson, json.dumps({"modules": learnt.modules, "flops": learnt.counts}))
        entry.leave(status)
    except BaseException:
        with suppress(OSError):  # the log's disk is full
            traceback.print_exc()
    os._exit(1)


def learn(lesson: Path) -> None:
    """Know what a rank said in its file; one that died said nothing."""
    with suppress(FileNotFoundError):
        told = json.loads(lesson.read_bytes())
        imported.update(dict.fromkeys(told["modules"]))
        flop_count.learn_counts(told["flops"])
