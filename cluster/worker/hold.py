"""A trial's wait for its sweep: one that was begun while the sweep's Prefect server and libraries start must not measure beside them.

The process that starts the sweep holds a file lock in the trial's folder (tasks/sweep/head_start.py). The operating system takes the lock
back however that process dies, so no trial waits for a dead one.
"""

from __future__ import annotations

import time
from pathlib import Path

from filelock import FileLock, Timeout

from cluster.trial_layout import HOLD
from cluster.worker.measure.recorder import Recorder


def wait(folder: Path, recorder: Recorder) -> float:
    """Wait until nobody holds the trial, recording the phase `hold`. Returns for how long, s: 0.0 where nobody held it."""
    path = folder / HOLD
    if not path.exists():
        return 0.0
    lock = FileLock(path)
    try:
        with lock.acquire(timeout=0):
            return 0.0
    except Timeout:
        recorder.phase("hold")
    began = time.monotonic()
    with lock:
        return time.monotonic() - began
