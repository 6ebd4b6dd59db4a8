"""Environment variables that mark every process of a trial, so that it can be found again.

They have their own module because a trial's process reads them without importing the launchers that set them.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

MARK = "SWEEPBENCH_TRIAL"  # the trial's key
POOL_MARK = "SWEEPBENCH_POOL"  # in a Ray job also the name of the trial's pool
NO_TRIAL = "-" * 16  # the mark of a process that is to become a trial's: as long as a key, so that a key can take its place
_ENV_START = 47  # of the fields of /proc/PID/stat that follow the program's name: where the environment begins (proc(5), field 50)


class MarkError(Exception):
    """This process could not be marked."""


def mark_forked_process(key: str) -> None:
    """Give this process, forked from one that was started with the mark NO_TRIAL, the mark `key`, for itself and its children.

    Others see a process's environment as it was when its program started, in the memory where the kernel put it. The mark is therefore
    written over there; setting the variable alone would reach only this process's children. Raises MarkError.
    """
    os.environ[MARK] = key
    before, after = f"{MARK}={NO_TRIAL}".encode(), f"{MARK}={key}".encode()
    variables = Path("/proc/self/environ").read_bytes()
    if len(before) != len(after) or variables.count(before) != 1:
        raise MarkError(f"the environment of process {os.getpid()} has no room for the mark {key}")
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_ENV_START])
    if not start:
        raise MarkError("the kernel does not tell where this process's environment is")
    ctypes.memmove(start + variables.index(before), after, len(after))
    if after not in Path("/proc/self/environ").read_bytes().split(b"\0"):
        raise MarkError(f"the mark {key} cannot be seen from outside")
