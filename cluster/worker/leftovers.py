"""Processes that an earlier trial of the same pool left on this node: children in a session of their own, whose trial was killed.

A trial that runs hangs on Ray or on its flow; what is left over was adopted by init (or a subreaper) and belongs to nobody. It would use
the device and disturb the measurement, so it is ended before the next trial starts, and the journal says so.
"""

from __future__ import annotations

import os

import psutil

from cluster.process_marks import MARK, POOL_MARK


def end() -> list[str]:
    """End what earlier trials of this process's pool left here. Returns a sentence for each process."""
    pool = os.environ.get(POOL_MARK)
    if not pool:
        return []
    said, killed = [], []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            left_by = environment.get(MARK)
            if environment.get(POOL_MARK) != pool or left_by is None or _has_a_master(process):
                continue
            command = " ".join(process.cmdline())[:100]
            process.kill()
        except (psutil.Error, OSError):
            continue
        killed.append(process)
        said.append(f"ended process {process.pid} ({command}), which trial {left_by} had left on this node")
    psutil.wait_procs(killed, timeout=2)  # its memory on the device is free once it is gone
    return said


def _has_a_master(process: psutil.Process) -> bool:
    """True if Ray is above it: it belongs to a trial that runs."""
    return any(name.startswith(("raylet", "ray::")) for parent in (process, *process.parents()) for name in _names(parent))


def _names(process: psutil.Process) -> list[str]:
    try:
        return [process.name(), *(part.rsplit("/", 1)[-1] for part in process.cmdline()[:1])]
    except psutil.Error:
        return []
