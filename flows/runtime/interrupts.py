"""What ends a command that runs trials: SIGTERM, a closed terminal, Ctrl-C. Its trials are stopped in order; another Ctrl-C kills them, and
another SIGTERM or a terminal that closes while they are stopped changes nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType

from cluster.pools.pool import load_pools
from experiments.trial import Trial
from tasks.report.text_format import plural

TOLD_TO_END = threading.Event()  # one of the three came: a command that runs several sweeps begins no other


class Terminated(BaseException):
    """SIGTERM reached this process. The flow has dealt with it by then: Prefect passes the signal on to the handler that was there."""


class TerminalClosed(KeyboardInterrupt):
    """The terminal that the command runs in was closed (SIGHUP)."""


@contextmanager
def heeded(running: Callable[[], Iterable[Trial]], resume: str) -> Iterator[None]:
    """Inside the block SIGTERM raises Terminated, a closed terminal TerminalClosed and Ctrl-C KeyboardInterrupt.

    A second Ctrl-C, or one while the trials are being stopped (`ending`), kills all processes of the trials that are `running` on this
    machine, says so and how to `resume`, and ends this process with status 1. What a shell's `nohup` has it ignore stays ignored. Raises
    ConfigError where pools.yaml is wrong.
    """
    told = _Told(running, resume)
    handlers = {signal.SIGTERM: told.terminated, signal.SIGHUP: told.terminal_closed, signal.SIGINT: told.interrupted}
    outer = _HEEDED.set(told)
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        _HEEDED.reset(outer)
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


@contextmanager
def ending() -> Iterator[None]:
    """Inside the block the trials are being stopped, for whatever reason: no further signal raises anything. A Ctrl-C kills them, in a
    command that heeds it. For the main thread; in another one it does nothing.

    Within a flow SIGTERM has Prefect's handler, which would raise in the midst of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if told := _HEEDED.get():
        told.ending = True
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if before[signal.SIGHUP] is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: _write_nowhere())
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def _write_nowhere() -> None:
    """The terminal is gone: a write to it would fail, and with it the orderly end."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):
            if os.isatty(stream.fileno()):  # type: ignore[union-attr]
                os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]


class _Told:
    """The handlers of the three."""

    def __init__(self, running: Callable[[], Iterable[Trial]], resume: str) -> None:
        self._running, self._resume = running, resume
        self._ray_pools = {name for name, pool in load_pools().items() if not pool.embedded}  # now: a handler reads no file
        self.ending = False  # the trials are being stopped, or a first Ctrl-C told to

    def terminated(self, number: int, frame: FrameType | None) -> None:
        TOLD_TO_END.set()
        raise Terminated

    def terminal_closed(self, number: int, frame: FrameType | None) -> None:
        TOLD_TO_END.set()
        _write_nowhere()
        raise TerminalClosed

    def interrupted(self, number: int, frame: FrameType | None) -> None:
        TOLD_TO_END.set()
        if not self.ending:
            self.ending = True
            raise KeyboardInterrupt
        from cluster.launchers import processes

        signal.signal(number, signal.SIG_IGN)
        trials = list(self._running())
        killed = sum(processes.end_all(trial.key) for trial in trials)
        were = f"{plural(killed, 'process')} of trials on this machine {'was' if killed == 1 else 'were'} killed"
        jobs = "; a Ray job may run on (`sweep stop` ends it)" if any(trial.pool in self._ray_pools for trial in trials) else ""
        os.write(2, f"\ninterrupted twice: {were}{jobs}\ngo on with it: {self._resume}\n".encode())  # the console's lock may be held
        os._exit(1)


_HEEDED: ContextVar[_Told | None] = ContextVar("heeded", default=None)
