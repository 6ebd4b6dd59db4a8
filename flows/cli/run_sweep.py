"""Run the flow in this process for the command line: no server needed, the live table on the terminal, the exit status at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from cluster.pools.busy import Look, other_work
from cluster.pools.pool import load_pools
from cluster.stack.settings import environment
from cluster.trial_layout import REPORT
from experiments.config.errors import UserError
from flows.cli import live_table
from flows.cli.show_comparison import print_comparison, print_where
from flows.runtime import prefect_api
from flows.runtime.handover import CURRENT, Handover
from flows.runtime.interrupts import Terminated, heeded
from flows.runtime.prefect_server import own_server
from flows.runtime.progress import CURRENT as PROGRESS
from flows.runtime.progress import SweepProgress
from tasks.report.text_format import plural
from tasks.sweep.growth import growth, seconds_run
from tasks.sweep.head_start import HeadStart, head_start
from tasks.sweep.plan import expected_seconds
from tasks.sweep.store import Plan, StoreError, SweepStore, exit_status
from tasks.sweep.what_is_left import what_is_left
from tasks.tracking.published import is_published

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

_QUIET = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # the live table is what a person reads; Prefect's UI has the log
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",  # each event that a server that is gone did not take, written out
    "GIT_PYTHON_REFRESH": "quiet",
}


def prepare_environment() -> str | None:
    """Settings that Prefect and MLflow read when they are imported. Returns the URL of the Prefect server to use, None where none runs.

    A stack started by `make up` is used if it is up, so that its UIs show the sweep.
    """
    for name, value in {**environment(), **_QUIET}.items():
        os.environ.setdefault(name, value)
    return os.environ.get("PREFECT_API_URL") or None


def run_sweep(plan: Plan, out: Console, err: Console, look: Look | None = None) -> int:
    """Run what is left of a planned and saved sweep; returns the exit status. Raises SweepBusy if another process works on it.

    `look`: at other work on this machine, where one has begun.
    """
    store = SweepStore(plan.sweep_id)
    with store.lease():
        server = prepare_environment()
        if _is_complete(store, plan):
            err.print("nothing is left to run, and MLflow has all of it: no flow is started", highlight=False)
            interrupted = False
        else:
            interrupted = _run_held(store, plan, server, err, look)
    print_comparison(out, store)
    print_where(out, store)
    status = store.load_status()
    if status is None:
        err.print(f"[bold red]the sweep did not start its trials[/]; `sweep resume {plan.sweep_id}` tries again")
        return 1
    colour = {0: "green", 2: "yellow"}.get(status["status"], "red")
    err.print(f"[{colour}]{escape(status['message'])}[/]", highlight=False, soft_wrap=True)
    if interrupted or status["status"] == 1:
        err.print(f"go on with it: sweep resume {plan.sweep_id}", highlight=False, soft_wrap=True)
    return 1 if interrupted else int(status["status"])


def _is_complete(store: SweepStore, plan: Plan) -> bool:
    """Whether a flow would find nothing to do: the last one ended well, all trials are done, none is to come, and all is published."""
    status, left = store.load_status(), what_is_left(store, plan)
    if left.begun or left.rest or status is None or status["status"] != exit_status(store.states(plan)):
        return False
    more = growth(plan)
    if more is not None and more(store, plan, seconds_run(store, plan)) is not None:
        return False
    return (store.dir / REPORT).exists() and is_published(store, plan)


def _run_held(store: SweepStore, plan: Plan, server: str | None, err: Console, look: Look | None) -> bool:
    """Run a sweep whose lease this process holds. `server`: a Prefect server's URL. True if it was interrupted."""
    err.print(
        f"sweep [bold]{plan.sweep_id}[/]: {plural(len(plan.trials), 'trial')}, results in {store.dir}", highlight=False, soft_wrap=True
    )
    _warn_of_other_work(plan, err, look)
    if server is not None:
        prefect_api.check(server)
    progress = SweepProgress(plan.trials, expected_seconds(plan))
    try:
        with (
            heeded(progress.unfinished, f"sweep resume {plan.sweep_id}"),
            head_start(store, plan) as begun,
            _prefect(server, begun, err),
        ):
            CURRENT.set(Handover(plan.sweep_id, begun))
            _run_flow(store, plan, progress, err)
    except (KeyboardInterrupt, Terminated):
        return True
    finally:
        CURRENT.set(None)
    return False


@contextmanager
def _prefect(server: str | None, begun: HeadStart | None, err: Console) -> Iterator[None]:
    """Have a Prefect server, `server` or one of this command's own, and the flow imported meanwhile. Raises PrefectServerError."""
    meanwhile = f"; meanwhile {escape(begun.trial.name)} begins on pool {begun.trial.pool}" if begun else ""
    if server is not None:
        err.print(f"Prefect: {server.removesuffix('/api')}{meanwhile}", highlight=False, soft_wrap=True)
    else:
        err.print(
            f"starting a Prefect server for this command (`make up` starts one that stays){meanwhile} ...", highlight=False, soft_wrap=True
        )
    with own_server() if server is None else nullcontext() as own:
        if own is not None:
            os.environ["PREFECT_API_URL"] = own.url  # read when Prefect is imported
        with err.status("Prefect starts ...") if err.is_terminal else nullcontext():
            import flows.sweep  # noqa: F401 - takes two seconds, like the server

            if own is not None:
                own.wait()
        yield


def _warn_of_other_work(plan: Plan, err: Console, look: Look | None) -> None:
    """Say so where a pool's machine is busy: it is easier to wait now than to measure again."""
    pools = load_pools()
    for name in dict.fromkeys(trial.pool for trial in plan.trials):
        if name in pools and (found := other_work(pools[name], look)):
            err.print(f"[yellow]warning[/]: pool {name}: {escape(found)}", highlight=False, soft_wrap=True)


def _run_flow(store: SweepStore, plan: Plan, progress: SweepProgress, err: Console) -> None:
    """The flow, under the live table. Raises PrefectAway, and StoreError where the flow left no status."""
    from flows.sweep import sweep

    PROGRESS.set(progress)
    request, began = plan.request, time.time()
    state: State[Any] | None = None
    with live_table.show(progress, err), prefect_api.not_needed_at_the_end(lambda: _ended_since(store, began), err.print):
        state = sweep(
            suite=request.suite,
            profile=request.profile,
            pools=request.pools,
            set=request.set,
            only=request.only,
            repeats=request.repeats,
            sweep_id=plan.sweep_id,
            pool_wait_s=request.pool_wait_s,
            return_state=True,
        )
    if state is not None and not _ended_since(store, began):  # such as a full disk, or a data set that has gone
        failure = state.result(raise_on_failure=False)
        raise failure if isinstance(failure, UserError) else StoreError(f"{state.message}; mend that, then: sweep resume {plan.sweep_id}")


def _ended_since(store: SweepStore, began: float) -> bool:
    """Whether a flow has said how the sweep went, at or after `began` (Unix time, s)."""
    status = store.load_status()
    return status is not None and status["at"] >= began
