"""A lock that a file's writer holds while it may write: the kernel releases it with the process, however that ends.

It tells others that nobody writes any more; also on another host that shares the file system, unless that is mounted with locks of one
host alone (NFS with nolock or local_lock). It is flock's, which closing another descriptor of the file does not release, as mirrors do.
A forked child has it too, until it has ended.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

POLL_S = 0.05


def hold(descriptor: int) -> None:
    """Hold the lock of this open file. Does nothing on a file system without locks, or where an earlier writer's child has it."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def release(descriptor: int) -> None:
    """Release the lock, also for children that were forked with it."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def writer_ended(path: Path, timeout_s: float) -> bool | None:
    """Whether nobody holds the file's lock any more, at the latest after `timeout_s`. None on a file system without locks.

    True where there is no such file. Raises OSError where it cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)  # on NFS only a file that is open for writing can be locked
    except FileNotFoundError:
        return True
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    return None
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
    finally:
        os.close(descriptor)
