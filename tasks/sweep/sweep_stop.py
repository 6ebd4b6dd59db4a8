"""How a running sweep is told to stop: by a file, by an event, and by waiting until its trials have ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tasks.sweep.store import SweepStore

_LOOK_S = 0.3  # between two looks for the file
_END_S = 20.0  # for the trials to end; Prefect kills a cancelled flow after 30


class SweepStop:
    """Shared by the threads of a sweep."""

    def __init__(self, store: SweepStore) -> None:
        self._store = store
        self.event = threading.Event()  # what running trials watch
        self._running, self._trial_ended = 0, threading.Condition()

    def is_set(self) -> bool:
        """True once the sweep is to stop."""
        return self.event.is_set()

    @contextmanager
    def running_trial(self) -> Iterator[None]:
        """A trial runs until the block ends: `request` waits for that."""
        with self._trial_ended:
            self._running += 1
        try:
            yield
        finally:
            with self._trial_ended:
                self._running -= 1
                self._trial_ended.notify_all()

    def watch_file(self, ended: threading.Event) -> None:
        """Turn `sweep stop`, a file, into the event that the trials watch. Returns once `ended` is set."""
        while not ended.wait(_LOOK_S):
            if self._store.stop_reason() is not None:
                self.event.set()

    def give_up(self, reason: str) -> None:
        """Stop the trials without waiting for their ends: for a trial's own thread. The first reason is kept."""
        if self._store.stop_reason() is None:
            self._store.request_stop(reason)
        self.event.set()

    def request(self, reason: str) -> None:
        """Stop the trials, and wait (at most 20 s) until each has ended and its end is recorded. The first reason is kept."""
        self.give_up(reason)
        with self._trial_ended:  # each trial's own thread stops it and records how it ended; only then can that be published
            self._trial_ended.wait_for(lambda: self._running == 0, timeout=_END_S)
