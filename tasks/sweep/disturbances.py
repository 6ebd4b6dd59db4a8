"""Whether it is worth while to measure disturbed trials again: not on a machine that stays busy."""

from __future__ import annotations

import threading

GIVE_UP_AFTER = 2  # trials in a row that were disturbed again


class Disturbances:
    """What became of the trials of one pool that were measured again. Its methods may be called from several threads."""

    def __init__(self) -> None:
        self._lock, self._in_vain = threading.Lock(), 0

    @property
    def worth_while(self) -> bool:
        """False once the last GIVE_UP_AFTER trials that were measured again were disturbed again."""
        with self._lock:
            return self._in_vain < GIVE_UP_AFTER

    def measured_again(self, *, disturbed: bool) -> None:
        """A trial was measured again, to its end."""
        with self._lock:
            self._in_vain = self._in_vain + 1 if disturbed else 0
