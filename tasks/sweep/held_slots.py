"""A trial's hold of its pool's slots. While it waits for a pool that is down, others may use them: the nodes are free."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from cluster.pools.node_locks import NodeLocks
from experiments.trial import Trial
from tasks.sweep.pool_slots import PoolSlots
from tasks.sweep.slot_log import SlotLog
from tasks.sweep.slot_waits import SlotWaits


class HeldSlots:
    """Holds the trial's slots for the time of a `with` block, except inside `without`.

    Once the sweep is stopped the block runs without them. `in_use(others)` is called each time that they are not free, with who holds
    them, and `started()` whenever the trial has them.
    """

    def __init__(
        self,
        slots: PoolSlots,
        trial: Trial,
        stop: threading.Event,
        log: SlotLog,
        waits: SlotWaits,
        in_use: Callable[[Sequence[str]], None],
        started: Callable[[], None],
        locks: NodeLocks | None = None,
    ) -> None:
        """`locks`: that the trial holds already, and that are in the log."""
        self._slots, self._trial, self._stop, self._log, self._waits = slots, trial, stop, log, waits
        self._in_use, self._started, self._locks = in_use, started, locks

    def __enter__(self) -> HeldSlots:
        with ExitStack() as undo:
            undo.push(self.__exit__)
            if self._locks is None:
                self._take()
            else:
                self._have()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        if self._locks is not None:
            self._log.given_back(self._trial.key)
            self._locks.give_back()
        else:
            self._log.given_up(self._trial.key)
        self._waits.over(self._trial.key)

    @contextmanager
    def without(self) -> Iterator[None]:
        """Others may use the slots inside the block, and what was held before it counts as not held: nothing could be started.

        After the block they are held again, which may take a while; not once the sweep is stopped.
        """
        held, self._locks = self._locks, None
        if held is not None:
            self._log.withdrawn(self._trial.key)
            held.give_back()
        self._waits.over(self._trial.key)
        with self._slots.waiting_for_pool(self._trial):
            yield
        self._take()

    def _take(self) -> None:
        asked_at = time.time()
        locks = self._slots.hold(self._trial, self._stop, lambda: self._told(locks))
        if names := locks.wait():
            self._locks = locks
            self._log.taken(self._trial.key, self._trial.pool, names, asked_at)
        self._have()

    def _have(self) -> None:
        self._waits.runs(self._trial.key)
        self._started()

    def _told(self, locks: NodeLocks) -> None:
        self._waits.waits(self._trial.key, locks.others)
        self._in_use(locks.others)
