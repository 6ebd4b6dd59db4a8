"""The state of a pool as a sweep's trials observe it: since when it has accepted no trials, and why. All trials of a pool share it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Tell = Callable[[str, str | None, float], None]


class PoolWatch:
    """Shared by the threads of a pool's trials; time is time.monotonic.

    `tell(pool, problem, seconds left)` is called at each change; `problem` is None once the pool accepts trials again.
    """

    def __init__(self, pool: str, wait_s: float, lost_after_s: float = 60.0, tell: Tell = lambda pool, problem, remaining_s: None) -> None:
        self.pool, self.wait_s, self.lost_after_s = pool, wait_s, lost_after_s
        self._tell, self._lock = tell, threading.Lock()
        self._since: float | None = None  # monotonic s
        self._problem: str | None = None

    def up(self) -> None:
        """The pool answered and accepts trials."""
        with self._lock:
            was, self._since, self._problem = self._problem, None, None
        if was is not None:
            self._tell(self.pool, None, self.wait_s)

    def refused(self, problem: str) -> None:
        """The pool answered and refuses trials from here, so they end at once."""
        with self._lock:
            changed, self._problem = problem != self._problem, problem
        if changed:
            self._tell(self.pool, problem, 0.0)

    def down(self, problem: str) -> bool:
        """The pool does not answer. True once this has lasted `wait_s` seconds: trials, later ones too, then end as infra."""
        now = time.monotonic()
        with self._lock:
            self._since = now if self._since is None else self._since
            remaining_s = self.wait_s - (now - self._since)
            changed, self._problem = problem != self._problem, problem
        if changed:
            self._tell(self.pool, problem, max(remaining_s, 0.0))
        return remaining_s <= 0
