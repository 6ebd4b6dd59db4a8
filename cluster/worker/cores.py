"""Hold a rank to its share of the host's CPU cores, so that trials on 1, 2 and 4 devices have as many for each of them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from experiments.components.workload import Unsupported

_THREADS = Path("/proc/self/task")


def share_of_cores(available: set[int], each: int, local_rank: int) -> set[int]:
    """The cores of one rank: the first `each` by their numbers for rank 0 of the host, the next for rank 1. Raises Unsupported.

    Neighbours by number are on one socket, as neighbouring devices mostly are.
    """
    wanted = each * (local_rank + 1)
    if wanted > len(available):
        raise Unsupported(f"cores_per_device {each}: rank {local_rank} of this host would need core {wanted} of {len(available)}")
    return set(sorted(available)[wanted - each : wanted])


def hold_to_cores(each: int | None, local_rank: int) -> None:
    """Let every thread of this process, and what it starts from now on, run on the rank's share alone. None: wherever there is room.

    Raises Unsupported where the host has too few.
    """
    if each is None:
        return
    share = share_of_cores(os.sched_getaffinity(0), each, local_rank)
    for thread in _THREADS.iterdir():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread.name), share)
