"""Is a port free, and if not, who has it."""

from __future__ import annotations

import errno
import socket

import psutil

from cluster.stack.settings import HOST


def in_use(port: int) -> bool:
    """True if something listens on `port` here, on loopback or on every interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        if probe.connect_ex((HOST, port)) == 0:
            return True
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that are closing do not count
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def holder(port: int) -> str:
    """Who listens on `port`, for people: pid and command, or that it cannot be told (another user's process, say)."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port and connection.pid:
                process = psutil.Process(connection.pid)
                return f"pid {process.pid}, {' '.join(process.cmdline())[:120] or process.name()}"
    except psutil.Error:
        pass
    return "a process that cannot be seen from here"
