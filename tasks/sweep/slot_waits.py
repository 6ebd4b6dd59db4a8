"""For how long a sweep could do nothing but wait for slots that others held: that is no time of its own, whatever it may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable


class SlotWaits:
    """Shared by the threads of a sweep's trials. The time counts while some wait for others' slots and none runs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: s."""
        self._clock, self._lock = clock, threading.Lock()
        self._waiting, self._running = set[str](), set[str]()
        self._since: float | None = None
        self._before = 0.0
        self.holders: set[str] = set()  # who was waited for, such as "sweep ID", as far as it is known

    def waits(self, key: str, others: Iterable[str]) -> None:
        """The trial waits for slots, which `others` hold (names, "" for an unknown one); none of them where only its own sweep does."""
        held = set(others)
        with self._lock:
            self.holders |= held - {""}
            (self._waiting.add if held else self._waiting.discard)(key)
            self._count()

    def runs(self, key: str) -> None:
        """The trial holds its slots."""
        with self._lock:
            self._waiting.discard(key)
            self._running.add(key)
            self._count()

    def over(self, key: str) -> None:
        """The trial neither waits nor runs any more."""
        with self._lock:
            self._waiting.discard(key)
            self._running.discard(key)
            self._count()

    @property
    def seconds(self) -> float:
        """So far, until now."""
        with self._lock:
            return self._before + (self._clock() - self._since if self._since is not None else 0.0)

    def _count(self) -> None:
        now, idle = self._clock(), bool(self._waiting) and not self._running
        if self._since is not None:
            self._before += now - self._since
        self._since = now if idle else None
