"""Locks on a pool's slots, so that two sweeps on this machine never use the same nodes at once.

A slot is room for one trial on one node. Its lock is a file lock, which the operating system releases when the holder dies. Ray itself
keeps sweeps from other machines off a node: see placement.py.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from filelock import FileLock, Timeout

from cluster.pools.pool import Pool
from experiments.config.paths import runs_root

_ASK_AGAIN_S = 0.5


class NodeLocks:
    """Context manager that holds `width` of the pool's `count` slots. It calls `busy()` each time it finds too few free slots.

    It gives up once `stop` is set. The block then runs without locks, so it must check `stop` and do nothing. One thread may take the
    locks and another enter the block that they are held for.
    """

    def __init__(self, pool: Pool, count: int, width: int, stop: threading.Event, busy: Callable[[], None] = lambda: None) -> None:
        folder = runs_root() / ".pools"
        folder.mkdir(parents=True, exist_ok=True)
        self._locks = [FileLock(folder / f"{hardware(pool)}-{number}.lock", thread_local=False) for number in range(count)]
        self._width, self._stop, self._busy = width, stop, busy
        self._held: ExitStack | None = None
        self._names: list[str] = []

    def __enter__(self) -> list[str]:
        """Names of the locks that are held now; [] if it gave up."""
        while not self._stop.is_set():
            if names := self.take():
                return names
            self._busy()
            self._stop.wait(_ASK_AGAIN_S)
        return []

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Unlock what is locked."""
        held, self._held, self._names = self._held, None, []
        if held is not None:
            held.close()

    def take(self) -> list[str]:
        """Lock all slots now, or none: two trials that each hold some and wait for more would wait for ever. The names of those locked."""
        if self._held is not None:
            return self._names
        with ExitStack() as acquired:
            names: list[str] = []
            for lock in self._locks:
                try:
                    lock.acquire(timeout=0)
                except Timeout:
                    continue
                acquired.callback(lock.release)
                names.append(Path(lock.lock_file).stem)
                if len(names) == self._width:
                    self._held, self._names = acquired.pop_all(), names
                    return names
        return []


def hardware(pool: Pool) -> str:
    """A file name for the nodes of a pool. Two pools that describe the same nodes get the same name, and so share their locks."""
    nodes = {"address": pool.address, "device": pool.device, "type": pool.accelerator_type, "resources": sorted(pool.resources)}
    return f"{pool.device}-{hashlib.sha256(json.dumps(nodes).encode()).hexdigest()[:12]}"
