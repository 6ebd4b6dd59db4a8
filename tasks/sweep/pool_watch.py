"""What the trials of a sweep have learnt about a pool: since when it does not take them, and why. One clock for all of a pool's trials."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Tell = Callable[[str, str | None, float], None]


class PoolWatch:
    """Shared by the threads of a pool's trials. `tell(pool, problem, seconds left)` hears of each change; problem None: it is well
    again."""

    def __init__(self, pool: str, wait_s: float, lost_after_s: float = 60.0, tell: Tell = lambda pool, problem, left: None) -> None:
        self.pool, self.wait_s, self.lost_after_s = pool, wait_s, lost_after_s
        self._tell, self._lock = tell, threading.Lock()
        self._since: float | None = None  # monotonic s
        self._problem: str | None = None

    def up(self) -> None:
        """It answered, and takes trials."""
        with self._lock:
            was, self._since, self._problem = self._problem, None, None
        if was is not None:
            self._tell(self.pool, None, self.wait_s)

    def refused(self, problem: str) -> None:
        """It answered, and does not take trials from here: they end at once."""
        with self._lock:
            changed, self._problem = problem != self._problem, problem
        if changed:
            self._tell(self.pool, problem, 0.0)

    def down(self, problem: str) -> bool:
        """It does not. True once it has been so for `wait_s`: trials then end as infra, and the next ones do not wait anew."""
        now = time.monotonic()
        with self._lock:
            self._since = now if self._since is None else self._since
            left = self.wait_s - (now - self._since)
            changed, self._problem = problem != self._problem, problem
        if changed:
            self._tell(self.pool, problem, max(left, 0.0))
        return left <= 0
