"""Locks on a pool's slots, so that two sweeps on this machine never use the same nodes at once.

A slot is room for one trial on one node. Its lock is a file lock, which the operating system releases when the holder dies. A file beside
it has the holder's name, for those who wait: it means something only while the lock is held. Ray itself keeps sweeps from other machines
off a node: see placement.py.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from cluster.pools.pool import Pool
from experiments.atomic_file import atomic_write
from experiments.config.paths import runs_root

_ASK_AGAIN_S = 0.5


class NodeLocks:
    """Context manager that holds `width` of the pool's `count` slots. It calls `busy()` each time it finds too few free slots.

    It gives up once `stop` is set. The block then runs without locks, so it must check `stop` and do nothing. One thread may take the
    locks and another enter the block that they are held for. `holder`: who holds them, such as "sweep ID", for others who wait.
    """

    def __init__(
        self, pool: Pool, count: int, width: int, stop: threading.Event, busy: Callable[[], None] = lambda: None, holder: str = ""
    ) -> None:
        folder = runs_root() / ".pools"
        folder.mkdir(parents=True, exist_ok=True)
        self._locks = [FileLock(folder / f"{hardware(pool)}-{number}.lock", thread_local=False) for number in range(count)]
        self._width, self._stop, self._busy, self._holder = width, stop, busy, holder
        self._held: ExitStack | None = None
        self._names: list[str] = []
        self._others: set[str] = set()

    def __enter__(self) -> list[str]:
        """See `wait`."""
        return self.wait()

    def wait(self) -> list[str]:
        """Lock the slots as soon as they are free. Names of the locks that are held now; [] if it gave up."""
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
        """Lock all slots now, or none: two trials that each hold some and wait for more would wait for ever. The names of those locked.

        Where none is locked, `others` are those who held them.
        """
        if self._held is not None:
            return self._names
        self._others = set()
        with ExitStack() as acquired:
            taken: list[FileLock] = []
            for lock in self._locks:
                try:
                    lock.acquire(timeout=0)
                except Timeout:
                    self._others.add(_holder_of(lock))
                    continue
                acquired.callback(lock.release)
                taken.append(lock)
                if len(taken) == self._width:
                    for held in taken:
                        _tell_holder(held, self._holder)
                    self._held, self._names = acquired.pop_all(), [Path(held.lock_file).stem for held in taken]
                    return self._names
        return []

    @property
    def others(self) -> list[str]:
        """Who else held slots when `take` last found too few, sorted; "" for one without a name. Empty where only this `holder` did."""
        return sorted(self._others - ({self._holder} if self._holder else set()))


def hardware(pool: Pool) -> str:
    """A file name for the nodes of a pool. Two pools that are the same nodes get the same name, and so share their locks.

    All exclusive pools of this machine are one node, whatever their device: trials of one would disturb those of another.
    """
    if pool.exclusive and pool.here:
        return "this-machine"
    nodes = {"address": pool.address, "device": pool.device, "type": pool.accelerator_type, "resources": sorted(pool.resources)}
    return f"{pool.device}-{hashlib.sha256(json.dumps(nodes).encode()).hexdigest()[:12]}"


def _holder_file(lock: FileLock) -> Path:
    return Path(lock.lock_file).with_suffix(".holder")


def _tell_holder(lock: FileLock, name: str) -> None:
    with suppress(OSError):  # it only tells
        atomic_write(_holder_file(lock), name)


def _holder_of(lock: FileLock) -> str:
    try:
        return _holder_file(lock).read_text(errors="replace")
    except OSError:
        return ""
