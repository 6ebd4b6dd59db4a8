"""The socket by which the jobs of a node reach a template process of theirs. Imports little: a job's process starts fast.

It has a name in Linux' abstract namespace: no file, so nothing is left of a template that was killed, and no limit by long paths. Such a
name has no owner, so each side asks the kernel who the other is.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

_PEER = struct.Struct("3i")  # struct ucred, unix(7)
_PARENT, _START_TIME = 1, 19  # of the fields of /proc/PID/stat that follow the program's name (proc(5), fields 4 and 22)


class Peer(NamedTuple):
    """The process that connected, or that listens."""

    pid: int
    uid: int
    gid: int


def peer(channel: socket.socket) -> Peer:
    """Who is on the other side of a connection. Raises OSError."""
    return Peer(*_PEER.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)))


def address(key: str, raylet: int) -> str:
    """The name of the socket of the template `key` under the Ray node whose process is `raylet`. Raises OSError."""
    return f"\0sweepbench-{os.geteuid()}-{key}-{raylet}-{_stat(raylet)[1][_START_TIME]}"


def listen(name: str) -> socket.socket:
    """A socket that takes connections under that name. Raises OSError, also where another process does so."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen(64)
    return listener


def connect(name: str) -> socket.socket:
    """A connection to the process of this user that listens under that name. Raises OSError."""
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.connect(name)
        if peer(channel).uid != os.geteuid():
            raise PermissionError("another user listens on its socket")
    except OSError:
        channel.close()
        raise
    return channel


def raylet() -> int | None:
    """The process id of the Ray node that this process descends from; None if it does not. Raises OSError."""
    pid = os.getppid()
    while pid > 1:
        name, fields = _stat(pid)
        if name == "raylet":
            return pid
        pid = int(fields[_PARENT])
    return None


def _stat(pid: int) -> tuple[str, list[str]]:
    """The program's name and the fields that follow it in /proc/PID/stat."""
    text, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return text.partition("(")[2], fields.split()
