"""A process beside `sweep bisect` that ends its trial if the command dies without doing so: SIGKILL leaves it no time to.

The trial has a session of its own and would run on, beside whatever takes the pool's slot next: the operating system has unlocked that.
No later command need know of it. The guard reads a pipe that only the command writes to; the kernel closes it however the command ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.launchers import processes
from cluster.python_path import environment_of
from experiments.config.paths import REPOSITORY


@contextmanager
def guarded(key: str) -> Iterator[None]:
    """Should this process die within the block, a process of its own kills all of the trial `key` at once. None is left after the block."""
    guard = subprocess.Popen(
        [sys.executable, "-m", "tasks.nightly.bisect_guard", key],
        env={**os.environ, **environment_of(REPOSITORY, os.environ)},  # not the code of the folder where the command is given
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # so that what kills or interrupts the command's group does not reach it
    )
    with guard:  # closes the pipe and waits for the guard
        yield


def _end_with_parent(key: str) -> None:
    sys.stdin.buffer.read()
    processes.end_all(key)


if __name__ == "__main__":
    _end_with_parent(sys.argv[1])
