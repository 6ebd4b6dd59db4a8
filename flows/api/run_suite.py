"""Run a suite from Python. The sweep itself runs in a process of its own, as `sweep run` would run it.

A notebook has an event loop, a log and signal handlers of its own, which Prefect and the live table would share with it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from experiments.config.duration import option_seconds
from experiments.config.errors import ConfigError, UserError
from experiments.config.paths import REPOSITORY
from flows.api.sweep import Sweep, load
from tasks.sweep.begin_sweep import begin_sweep
from tasks.sweep.plan import make_plan
from tasks.sweep.store import Request

_INCOMPLETE = 1  # exit status


class RunError(UserError):
    """The sweep could not be run to its end. The message names it, and the command that goes on with it."""


def run(
    suite: str,
    *,
    profile: str = "auto",
    pool: str | Sequence[str] | None = None,
    set: Mapping[str, Any] | None = None,
    only: Mapping[str, Any] | None = None,
    repeats: int | None = None,
    budget: str | None = None,
    until_decided: bool | None = None,
    say: Callable[[str], None] | None = print,
) -> Sweep:
    """Run a suite to its end and return the sweep, as `sweep run` with options of the same names.

    `set`: parameter -> value for all cells; `only`: axis -> the value, or a list of the values, that cells are kept of; `budget`: a time
    such as `10m`, in which rounds of repeats go on. `say` is told each line that the run prints; None: nothing is said. A trial that fails
    is a row of the sweep, no error. An interrupt stops the sweep as Ctrl-C does; `sweep resume` goes on with it.

    Raises ConfigError, before anything starts, for what is wrong with the request; RunError where the sweep did not come to its end.
    """
    plan, _ = make_plan(
        Request(
            suite=suite,
            profile=profile,
            pools=[pool] if isinstance(pool, str) else list(pool or ()),
            set=dict(set or {}),
            only={axis: _values(value) for axis, value in (only or {}).items()},
            repeats=_repeats(repeats),
            budget_s=None if budget is None else option_seconds("budget", budget),
            until_decided=until_decided,
        )
    )
    begin_sweep(plan)
    status, last = _follow([sys.executable, "-m", "flows.cli", "resume", plan.sweep_id], say)
    if status == _INCOMPLETE:
        raise RunError(f"sweep {plan.sweep_id} did not come to its end: {last}; `sweep resume {plan.sweep_id}` goes on with it")
    return load(plan.sweep_id)


def _values(value: Any) -> list[Any]:
    return list(value) if not isinstance(value, str) and isinstance(value, Iterable) else [value]


def _repeats(repeats: int | None) -> int | None:
    if repeats is not None and repeats < 1:
        raise ConfigError.one("repeats", None, "", f"is {repeats}", "1 or more")
    return repeats


def _follow(command: Sequence[str], say: Callable[[str], None] | None) -> tuple[int, str]:
    """Run a command and tell what it prints, line by line. Returns its exit status and its last line.

    Interrupts are passed on to it; once it has ended the interrupt is raised again.
    """
    last, interrupted = "it ended without a word", False
    # A session of its own: Ctrl-C in a terminal would reach it twice
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        lines = process.stdout
        while True:
            try:
                if not (line := lines.readline()):
                    break
                last = line.strip() or last
                if say is not None:
                    say(line.rstrip("\n"))
            except KeyboardInterrupt:
                interrupted = True
                process.send_signal(signal.SIGINT)
    if interrupted:
        raise KeyboardInterrupt
    return process.returncode, last
