"""Whether a port is in use, and by which process."""

from __future__ import annotations

import errno
import socket

import psutil

from cluster.stack.settings import HOST


def in_use(port: int) -> bool:
    """True if a process listens on `port` of this machine, on loopback or on every interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        if probe.connect_ex((HOST, port)) == 0:
            return True
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections that are closing
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def holder(port: int) -> str:
    """The process that listens on `port`, as text: pid and command, or a phrase if it is invisible to us (another user's)."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port and connection.pid:
                process = psutil.Process(connection.pid)
                return f"pid {process.pid}, {' '.join(process.cmdline())[:120] or process.name()}"
    except psutil.Error:
        pass
    return "a process that cannot be seen from here"
