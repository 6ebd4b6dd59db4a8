"""An opaque id of the machine that a trial ran on: readers can tell which trials share a machine, and not which machine it is."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterable
from pathlib import Path

MACHINE_ID = Path("/etc/machine-id")
DIGITS = 12
_PURPOSE = "sweepbench host"  # machine-id(5): never publish the id itself, only a hash of it that is made for one purpose


def host_id(accelerators: Iterable[str], machine_id: Path = MACHINE_ID) -> str:
    """12 hex digits of a SHA-256 over the machine's id (the host's name where it has none) and the ids of all its accelerators.

    `accelerators` tell machines apart that were made from one image, whose machine ids are the same.
    """
    try:
        machine = machine_id.read_text().strip()
    except OSError:
        machine = ""
    parts = [_PURPOSE, machine or socket.gethostname(), *sorted(accelerators)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGITS]
