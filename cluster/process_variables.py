"""The environment variables of a process, also of one that has only just been started."""

from __future__ import annotations

import time

import psutil

EXEC_POLL_S, EXEC_POLLS = 0.005, 200  # interval (s) and limit of the checks on a process that is in exec


def variables(process: psutil.Process) -> dict[str, str]:
    """A process's environment. During exec a process shows none and would be missed, so this waits up to a second for it.

    Raises psutil.Error or OSError of one that has ended or is another user's.
    """
    for _ in range(EXEC_POLLS):
        found = process.environ()
        if found or not process.memory_info().vms:  # a kernel thread has no address space, nor has a zombie
            return found
        if process.cmdline():  # set together with the environment: it is complete, or the process has no variables
            return process.environ()
        time.sleep(EXEC_POLL_S)
    return {}
