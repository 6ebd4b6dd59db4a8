"""Errors of a disk that end a trial without being its fault: it is full, or can no longer be written.

A trial's process that cannot even write its result says so by its exit status. What a workload reads may lie on another disk, which fails
while ours is whole: then the file that failed is named, as far as the error tells.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


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
DATA_LOST = "data_lost"  # as the reason of a trial begins whose own folder is whole: another file cannot be read or written
_DATA_REMEDY = "it is not in the trial's own folder; check its disk or mount, the kernel's log (dmesg) says what happened to it"
_UNNAMED_REMEDY = "of which file is not told, and the trial's own folder can be written; check the disk or mount of the data (dmesg)"
# How an error of another process is told that is passed on as text alone, such as a DataLoader's: the last line of its traceback
_AS_TEXT = re.compile(r"\[Errno (\d+)\] [^\n]*?(?:: (['\"])([^\n]*)\2)?\s*$", re.MULTILINE)


class DiskFailure(NamedTuple):
    """How such an error ended a trial. `kind`: as its reason begins. `text`: the error. `remedy`: what would be right."""

    kind: str
    text: str
    remedy: str


def disk_error(error: BaseException) -> DiskError | None:
    """Which of them an OSError says; None for any other error."""
    told = _told(error)
    return None if told is None else next((one for one in KINDS if told[0] in one.numbers), None)


def disk_failure(error: BaseException, own: Sequence[Path]) -> DiskFailure | None:
    """What such an error, raised in a trial's process, says of its disks; None for any other error.

    `own`: folders that are ours, the trial's own first. Where the error names no file, that one is tried: a byte is written there.
    """
    disk, told = disk_error(error), _told(error)
    if disk is None or told is None:
        return None
    _, text, path = told
    if disk is FULL or (_lies_in(path, own) if path else any(_cannot_be_written(folder) for folder in own[:1])):
        return DiskFailure(disk.kind, text, disk.remedy)
    return DiskFailure(DATA_LOST, text, _DATA_REMEDY if path else _UNNAMED_REMEDY)


def names_other_file(error: BaseException, own: Sequence[Path]) -> bool:
    """Whether an OSError names a file that lies in none of these folders."""
    told = _told(error)
    return told is not None and told[2] is not None and not _lies_in(told[2], own)


def name_lost_folder(error: BaseException, folder: Path) -> None:
    """Let an error of a lost disk that names no file name `folder`, if that cannot be written: another node cannot try this one's."""
    if isinstance(error, OSError) and error.errno in LOST.numbers and error.filename is None and _cannot_be_written(folder):
        error.filename = str(folder)


def _told(error: BaseException) -> tuple[int, str, str | None] | None:
    """An OSError's number and text, and which file it names; None for any other error."""
    if not isinstance(error, OSError):
        return None
    if error.errno is not None:
        name = error.filename  # a descriptor's number where it was opened by that
        return error.errno, str(error), os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else None
    found = list(_AS_TEXT.finditer(str(error)))
    return (int(found[-1][1]), found[-1][0].strip(), found[-1][3]) if found else None


def _lies_in(path: str, folders: Sequence[Path]) -> bool:
    return any(Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)) for folder in folders)


def _cannot_be_written(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(b"\n")
            os.fsync(file.fileno())
    except OSError as error:
        return disk_error(error) is not None
    return False
