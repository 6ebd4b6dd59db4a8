"""Signals that end a command."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from cluster.launchers import processes
from flows.runtime import interrupts
from flows.runtime.interrupts import TerminalClosed, Terminated, ending, heeded
from flows.runtime.stopping import _reason
from tests.tasks.plan_support import make_trial

NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGHUP, TerminalClosed), (signal.SIGINT, KeyboardInterrupt)]
)
def test_the_first_is_an_exception_and_what_was_there_before_comes_back(number: signal.Signals, raised: type[BaseException]) -> None:
    if number is signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)  # the tests may run under nohup
    before = signal.getsignal(number)
    with pytest.raises(raised), heeded(list, "sweep resume x"):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


def test_a_closed_terminal_is_the_reason_of_its_trials() -> None:
    assert _reason(TerminalClosed()) == "the terminal was closed (SIGHUP)"
    assert _reason(KeyboardInterrupt()) == "interrupted (Ctrl-C)"


def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with heeded(list, "sweep resume x"):
        os.kill(os.getpid(), signal.SIGHUP)


@pytest.mark.parametrize("first", NUMBERS)
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
def test_another_signal_does_not_break_off_the_orderly_end(first: signal.Signals, second: signal.Signals) -> None:
    """A terminal that is closed and a supervisor that then ends its processes: the second once gave the pool back under running trials."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    ended = False
    with heeded(list, "sweep resume x"):
        try:
            os.kill(os.getpid(), first)
        except BaseException:
            with ending():
                os.kill(os.getpid(), second)
                ended = True
    assert ended


def test_a_sigterm_after_that_ends_the_command() -> None:
    """Prefect sends it again once its flow has dealt with it."""
    with pytest.raises(Terminated), heeded(list, "sweep resume x"):
        with ending():
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)


def test_the_next_sweep_of_the_process_heeds_its_first_signal() -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), heeded(list, "sweep resume x"):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("each", "pool", "said"),
    [
        ([2, 2], "cpu", "4 processes of trials on this machine were killed"),
        ([0, 1], "ray-pool", "1 process of trials on this machine was killed; a Ray job may run on (`sweep stop` ends it)"),
    ],
)
def test_a_second_ctrl_c_kills_what_runs_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], each: list[int], pool: str, said: str, first: signal.Signals
) -> None:
    """Only a trial on a Ray pool has a job that may run on."""
    killed: list[str] = []

    class Left(BaseException):
        pass

    def leave(status: int) -> None:
        raise Left(status)

    left = iter(each)
    monkeypatch.setattr(processes, "end_all", lambda key: (killed.append(key), next(left))[1])
    monkeypatch.setattr(interrupts.os, "_exit", leave)
    pools = {name: SimpleNamespace(embedded=name == "cpu") for name in ("cpu", "ray-pool")}
    monkeypatch.setattr(interrupts, "load_pools", lambda: pools)
    trials = [make_trial(1), make_trial(2, pool=pool)]
    with pytest.raises(Left, match="1"), heeded(lambda: trials, "sweep resume x"):
        try:
            os.kill(os.getpid(), first)
        except (KeyboardInterrupt, Terminated):
            assert killed == []
            with ending():
                os.kill(os.getpid(), signal.SIGINT)
    assert killed == [trial.key for trial in trials]
    assert capfd.readouterr().err.endswith(f"\ninterrupted twice: {said}\ngo on with it: sweep resume x\n")
