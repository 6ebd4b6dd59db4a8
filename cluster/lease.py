"""Who works on a sweep: its lease is a file lock, which the operating system releases when the process that holds it dies."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from cluster.trial_layout import HOLDER, LEASE
from experiments.atomic_file import atomic_write

_SERVERS = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "SWEEPBENCH_LOCAL_ADDRESS")  # variables that hold a server's address


class Holder(NamedTuple):
    """The process that took a sweep's lease last. `servers`: those that its environment named then, such as 127.0.0.1:4200."""

    pid: int
    host: str
    servers: frozenset[str] = frozenset()


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


def name_holder(sweep: Path) -> None:
    """Write that this process holds the lease, beside it. Raises OSError."""
    named = [os.environ.get(variable, "") for variable in _SERVERS]
    servers = sorted({server for server in map(server_at, named) if server})
    atomic_write(sweep / HOLDER, json.dumps({"pid": os.getpid(), "host": os.uname().nodename, "since": time.time(), "servers": servers}))


def server_at(address: str) -> str | None:
    """The server of a web address as host:port, without the password that the address may have; None of what is no such address."""
    try:
        parts = urlsplit(address)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        return None
    return f"{parts.hostname}:{port}" if parts.hostname else None


def holder(sweep: Path) -> Holder | None:
    """Who took the lease last, by the file beside it; None where that does not say. A process that was killed leaves the file, and its pid
    may be another's by now: it means something only while the lease is held."""
    try:
        said = json.loads((sweep / HOLDER).read_text())
        return Holder(int(said["pid"]), str(said["host"]), frozenset(map(str, said.get("servers", []))))  # none in files of before
    except (OSError, ValueError, KeyError, TypeError):
        return None
