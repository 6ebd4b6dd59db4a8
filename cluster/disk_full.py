"""A full disk: which errors say so, and how a trial's process that cannot even write its result says so by its exit status."""

from __future__ import annotations

import errno

DISK_FULL = 74  # exit status: EX_IOERR of sysexits.h


def is_disk_full(error: BaseException) -> bool:
    """True for an OSError that says that a disk, or this user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
