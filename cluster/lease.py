"""Who works on a sweep: its lease is a file lock, which the operating system releases when the process that holds it dies."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import NamedTuple

from cluster.trial_layout import HOLDER, LEASE


class Holder(NamedTuple):
    """The process that took a sweep's lease last."""

    pid: int
    host: str


def is_held(sweep: Path) -> bool:
    """Whether a process works on the sweep with this folder.

    It only reads, so it also tells of a sweep of another user. A lease that this user may not read counts as held: nobody then takes a
    sweep that may be running for dead.
    """
    try:
        lease = os.open(sweep / LEASE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(lease, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: those who ask at once do not take each other for the holder
    except OSError:
        return True
    finally:
        os.close(lease)
    return False


def holder(sweep: Path) -> Holder | None:
    """Who took the lease last, by the file beside it; None where that does not say. A process that was killed leaves the file, and its pid
    may be another's by now: it means something only while the lease is held."""
    try:
        said = json.loads((sweep / HOLDER).read_text())
        return Holder(int(said["pid"]), str(said["host"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
