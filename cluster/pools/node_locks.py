"""Places on a pool that no other sweep on this machine has: file locks, which the operating system takes back when their holder dies.

Sweeps that are run from other machines are kept off a node by Ray itself: see placement.py.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from contextlib import ExitStack

from filelock import FileLock, Timeout

from cluster.pools.pool import Pool
from experiments.config.paths import runs_root

_ASK_AGAIN_S = 0.5


class NodeLocks:
    """`width` of the pool's `count` places, held from `with` to its end; `busy()` is called where they are not free at once.

    Gives up when `stop` is set: the block then runs without places, and is to do nothing.
    """

    def __init__(self, pool: Pool, count: int, width: int, stop: threading.Event, busy: Callable[[], None] = lambda: None) -> None:
        folder = runs_root() / ".pools"
        folder.mkdir(parents=True, exist_ok=True)
        self._locks = [FileLock(folder / f"{hardware(pool)}-{number}.lock") for number in range(count)]
        self._width, self._stop, self._busy = width, stop, busy
        self._held = ExitStack()

    def __enter__(self) -> None:
        while not self._stop.is_set() and not self._take():
            self._busy()
            self._stop.wait(_ASK_AGAIN_S)

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _take(self) -> bool:
        """All of the places, or none: a trial that holds some while it waits for more could wait for ever."""
        with ExitStack() as taken:
            have = 0
            for lock in self._locks:
                try:
                    lock.acquire(timeout=0)
                except Timeout:
                    continue
                taken.callback(lock.release)
                have += 1
                if have == self._width:
                    self._held = taken.pop_all()
                    return True
        return False


def hardware(pool: Pool) -> str:
    """A file name for the nodes of a pool: two pools that name the same nodes share their places."""
    nodes = {"address": pool.address, "device": pool.device, "type": pool.accelerator_type, "resources": sorted(pool.resources)}
    return f"{pool.device}-{hashlib.sha256(json.dumps(nodes).encode()).hexdigest()[:12]}"
