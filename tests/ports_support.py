"""Ports for servers that tests start later, and that nobody else comes to have meanwhile."""

from __future__ import annotations

import itertools
import os
import random
import socket
from functools import cache

# Below those that Linux gives whoever asks for any port or connects (net.ipv4.ip_local_port_range): each Ray cluster takes dozens of them
_FIRST, _END = 20_000, 32_000
_PROCESSES = 16  # of pytest-xdist's, each of which has every sixteenth


@cache
def _ports() -> itertools.cycle[int]:
    """From a random one on: two runs of the tests may be on one machine."""
    own = range(_FIRST + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _PROCESSES, _END, _PROCESSES)
    begin = random.SystemRandom().randrange(len(own))
    return itertools.cycle([*own[begin:], *own[:begin]])


def free_ports(count: int) -> list[int]:
    """Different ones, on which nobody listens; none is given again before all others were."""
    found: list[int] = []
    for port in itertools.islice(_ports(), (_END - _FIRST) // _PROCESSES):
        if len(found) == count:
            break
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    assert len(found) == count, f"{count} ports of {_FIRST} to {_END} are not free"
    return found


def free_port() -> int:
    return free_ports(1)[0]
