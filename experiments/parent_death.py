"""End a process with the one that started it, however that ends: the kernel kills it (Linux, prctl(2): PR_SET_PDEATHSIG).

Run as a program, `python -IS parent_death.py PARENT COMMAND...` becomes the command, which then ends with the process PARENT. So it also
ends where its parent was killed before the command had begun, and could not yet be found as what it is. It imports nothing but the
standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def end_with(parent: int) -> None:
    """Have the kernel kill this process once its parent has ended, of which the thread counts that started it.

    Raises OSError where it has ended already: `parent` (a process id) is not the parent any more.
    """
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        raise ProcessLookupError(f"process {parent}, which started this one, has ended")


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - the command of whoever started it
