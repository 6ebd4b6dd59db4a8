"""How many trials of a sweep a pool takes at once, and the slots that a running trial holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from cluster.pools.node_locks import NodeLocks, hardware
from cluster.pools.placement import nodes_for
from cluster.pools.pool import Pool
from experiments.trial import Trial

IN_USE = "pool in use"  # what a trial waits for while another one holds its slots


class PoolSlots:
    """The slots of a pool. On an exclusive pool a slot is a node, since neighbours disturb each other's measurement; on another it is
    as many accelerators as the sweep's widest trial takes."""

    def __init__(self, pool: Pool, trials: Iterable[Trial]) -> None:
        """`trials`: those of the sweep, of which the ones of other pools do not count."""
        self.pool = pool
        self._widest = max(int(trial.parameters["devices"]) for trial in trials if trial.pool == pool.name)
        self._without: set[str] = set()  # keys of trials that have begun and gave their slots back, since the pool is down

    @property
    def total(self) -> int:
        """Slots of the whole pool, at least 1."""
        if self.pool.exclusive:
            return self.pool.nodes
        return max(1, self.pool.nodes * (self.pool.accelerators_per_node or self._widest) // self._widest)

    @property
    def nodes(self) -> str:
        """Which nodes these are: pools with the same ones share their slots."""
        return hardware(self.pool)

    def needed(self, trial: Trial) -> int:
        """Slots that a trial takes, at most all of them."""
        return min(nodes_for(self.pool, int(trial.parameters["devices"])) if self.pool.exclusive else 1, self.total)

    def taken_by(self, trial: Trial) -> int:
        """Slots that a trial which has begun takes now, or is about to take: none while it waits for a pool that is down."""
        return 0 if trial.key in self._without else self.needed(trial)

    @property
    def pool_is_down(self) -> bool:
        """Whether a trial that has begun waits for the pool: no other one of it need begin."""
        return bool(self._without)

    @contextmanager
    def waiting_for_pool(self, trial: Trial) -> Iterator[None]:
        """Inside the block the trial takes no slots."""
        self._without.add(trial.key)
        try:
            yield
        finally:
            self._without.discard(trial.key)

    def hold(self, trial: Trial, stop: threading.Event, on_wait: Callable[[], None]) -> NodeLocks:
        """Holds the trial's slots for the time of a `with` block. `on_wait` is called each time that they are not free."""
        return NodeLocks(self.pool, self.total, self.needed(trial), stop, on_wait, f"sweep {trial.sweep_id}")
