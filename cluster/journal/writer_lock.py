"""A lock that a file's writer holds while it may write: the kernel releases it with the process, however that ends.

It tells others that nobody writes any more; also on another host that shares the file system, unless that is mounted with locks of one
host alone (NFS with nolock or local_lock). It is flock's, which closing another descriptor of the file does not release, as mirrors do.
A forked child has it too, until it has ended.

Asking takes the lock for an instant, since flock has no question. So a writer tries again for as long as it may wait: whoever asks neither
keeps it from writing nor makes it write without the lock. Those that ask share it, so that none takes another one for a writer.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from cluster.disk_errors import disk_error

POLL_S = 0.05
ENDED_S = 30.0  # how long the end of a writer is waited for, whose process was killed: children that it forked end after it


class WriterLock:
    """The lock of an open file. It keeps a descriptor of its own, so that it can be released after the file was closed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = os.dup(descriptor)

    def hold(self, timeout_s: float) -> bool | None:
        """Whether it could be taken, at the latest after `timeout_s` (s); None on a file system without locks. Raises OSError of a disk."""
        return None if self._descriptor is None else _take(self._descriptor, fcntl.LOCK_EX, timeout_s)

    def release(self) -> None:
        """Release the lock, also for children that were forked with it. Once more changes nothing."""
        if self._descriptor is not None:
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        descriptor, self._descriptor = self._descriptor, None  # only now: a call that a signal broke off is made good by the next
        if descriptor is not None:
            os.close(descriptor)


def writer_ended(path: Path, timeout_s: float) -> bool | None:
    """Whether nobody holds the file's lock any more, at the latest after `timeout_s` (s). None on a file system without locks.

    True where there is no such file. Raises OSError where it cannot be opened, or its disk fails.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)  # on NFS only a file that is open for writing can be locked
    except FileNotFoundError:
        return True
    try:
        return _take(descriptor, fcntl.LOCK_SH, timeout_s)
    finally:
        os.close(descriptor)


def _take(descriptor: int, kind: int, timeout_s: float) -> bool | None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if disk_error(error) is not None:
                raise
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return None
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
