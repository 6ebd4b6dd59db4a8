"""Errors of a disk that end a trial without being its fault: it is full, or can no longer be written.

A trial's process that cannot even write its result says so by its exit status.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass


@dataclass(frozen=True)
class DiskError:
    """One kind of such errors. `kind`: as a reason begins. `remedy`: what would be right. `numbers`: of errno."""

    kind: str
    exit_status: int
    what: str
    remedy: str
    numbers: tuple[int, ...]


FULL = DiskError("disk_full", 74, "no space left", "free some", (errno.ENOSPC, errno.EDQUOT))  # 74: EX_IOERR of sysexits.h
LOST = DiskError(
    "disk_lost",
    73,  # EX_CANTCREAT of sysexits.h
    "nothing can be written any more",
    "mount it for writing; the kernel's log (dmesg) says what happened to it",
    # read-only, as after an error of its file system; failed; a network file system that its server has replaced; one without its process
    (errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN),
)
KINDS = (FULL, LOST)


def disk_error(error: BaseException) -> DiskError | None:
    """Which of them an OSError says; None for any other error."""
    if not isinstance(error, OSError):
        return None
    return next((one for one in KINDS if error.errno in one.numbers), None)
