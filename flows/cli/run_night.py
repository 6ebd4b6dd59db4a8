"""Run a night in this process for the command line, as flows/cli/run_sweep.py runs a sweep."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from flows.cli import live_table
from flows.runtime import prefect_api
from flows.runtime.command_environment import prepare_environment
from flows.runtime.interrupts import Terminated, heeded
from flows.runtime.prefect_server import own_server
from tasks.nightly.recording import records_only
from tasks.nightly.report import headline
from tasks.nightly.store import NightStore
from tasks.tracking.client import check_database

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State


def run_night(definition: str, name: str, date: str, budget: str | None, pools: Sequence[str], out: Console, err: Console) -> int:
    """Run, or go on with, one night of a definition (its path or `name`). Returns the exit status: 3 where something got worse."""
    server = prepare_environment()
    check_database()
    resume = _resume(definition, date, budget, pools)
    with ExitStack() as stack:
        if server is None:
            err.print("starting a Prefect server for this command (`make up` starts one that stays) ...", highlight=False)
            os.environ["PREFECT_API_URL"] = stack.enter_context(own_server()).wait()
        else:
            prefect_api.check(server)
            err.print(f"Prefect: {server.removesuffix('/api')}", highlight=False)
        state, ended = _run(definition, date, budget, pools, resume, err)
    if state is None:
        err.print(f"interrupted; go on with it: {resume}", highlight=False, soft_wrap=True)
        return 1
    store = NightStore(name)
    night = store.load(date) if date in store.dates() and state.name != "Skipped" else None
    if night is not None:
        from flows.cli.show_night import show_night

        show_night(out, store, night)
    said = state.message or ""
    if night is None or not records_only(night) or said != headline(night):  # which is all that was shown of a first night
        colour = "green" if state.is_completed() else "red"
        err.print(f"[{colour}]{escape(said)}[/]", highlight=False, soft_wrap=True)
    if state.name == "Skipped":
        return 0
    return ended[0] if night is not None and ended else 1


def _resume(definition: str, date: str, budget: str | None, pools: Sequence[str]) -> str:
    """What goes on with a night. With all that was given: where nothing of it is planned yet, the definition's would be taken instead."""
    words = ["sweep", "nightly", definition, "--date", date, *(["--budget", budget] if budget is not None else [])]
    return shlex.join([*words, *(word for pool in pools for word in ("--pool", pool))])


def _run(
    name: str, date: str, budget: str | None, pools: Sequence[str], resume: str, err: Console
) -> tuple[State[Any] | None, tuple[int, str] | None]:
    """The flow's last state, None if it was interrupted; and its exit status and message, None if it did not come to its end."""
    from flows.nightly import nightly
    from flows.runtime.progress import CURRENT, SweepProgress

    progress = SweepProgress()
    CURRENT.set(progress)
    try:
        with heeded(progress.running, resume), live_table.show(progress, err):
            state: State[Any] = nightly(name=name, date=date, budget=budget, pools=list(pools), return_state=True)
            return state, progress.ended
    except (KeyboardInterrupt, Terminated):
        return None, progress.ended
