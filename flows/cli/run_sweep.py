"""Run the flow in this process for the command line: no server needed, the live table on the terminal, the exit status at the end."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

from rich.console import Console
from rich.markup import escape

from cluster.pools.busy import other_work
from cluster.pools.pool import load_pools
from cluster.stack.settings import environment
from experiments.config import duration
from flows.cli import live_table
from flows.cli.show_comparison import print_comparison, print_where
from flows.runtime.prefect_server import own_server
from tasks.report.text_format import plural
from tasks.sweep.plan import expected_seconds
from tasks.sweep.store import Plan, SweepStore

_QUIET = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # the live table is what a person reads; Prefect's UI has the log
    "GIT_PYTHON_REFRESH": "quiet",
}


def prepare_environment() -> str | None:
    """Settings that Prefect and MLflow read when they are imported. Returns the URL of the Prefect server to use, None where none runs.

    A stack started by `make up` is used if it is up, so that its UIs show the sweep.
    """
    for name, value in {**environment(), **_QUIET}.items():
        os.environ.setdefault(name, value)
    return os.environ.get("PREFECT_API_URL") or None


def run_sweep(plan: Plan, out: Console, err: Console, *, budget: str | None = None, until_decided: bool | None = None) -> int:
    """Run what is left of a planned sweep; returns the exit status. `budget`: so much more time for it.

    Raises SweepBusy if another process works on it.
    """
    store = SweepStore(plan.sweep_id)
    if store.is_held():
        with store.lease():  # raises, naming the holder
            pass
    server = prepare_environment()
    err.print(f"sweep [bold]{plan.sweep_id}[/]: {_size(plan)}, results in {store.dir}", highlight=False, soft_wrap=True)
    _warn_of_other_work(plan, err)
    with ExitStack() as stack:
        if server is None:
            err.print("starting a Prefect server for this command (`make up` starts one that stays) ...", highlight=False)
            os.environ["PREFECT_API_URL"] = stack.enter_context(own_server())
        else:
            err.print(f"Prefect: {server.removesuffix('/api')}", highlight=False)
        interrupted = _run_flow(plan, err, budget, until_decided)
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


def _size(plan: Plan) -> str:
    """15 trials; of a plan that grows, what makes it end."""
    if plan.decide is None:
        return plural(len(plan.trials), "trial")
    cells = plural(len({trial.cell for trial in plan.trials}), "cell")
    until = "until all comparisons are decided, or " if plan.decide.until_decided else ""
    return f"rounds of {cells} {until}until no other fits in {duration.text(plan.decide.budget_s)}"


def _warn_of_other_work(plan: Plan, err: Console) -> None:
    """Say so where a pool's machine is busy: it is easier to wait now than to measure again."""
    pools = load_pools()
    for name in dict.fromkeys(trial.pool for trial in plan.trials):
        if name in pools and (found := other_work(pools[name])):
            err.print(f"[yellow]warning[/]: pool {name}: {escape(found)}", highlight=False, soft_wrap=True)


def _run_flow(plan: Plan, err: Console, budget: str | None, until_decided: bool | None) -> bool:
    """The flow, under the live table. True if it was interrupted."""
    from flows.runtime.progress import CURRENT, SweepProgress
    from flows.sweep import sweep

    signal.signal(signal.SIGTERM, terminated)
    progress = SweepProgress(plan.trials, expected_seconds(plan))
    CURRENT.set(progress)
    request = plan.request
    try:
        with live_table.show(progress, err):
            sweep(
                suite=request.suite,
                profile=request.profile,
                pools=request.pools,
                set=request.set,
                only=request.only,
                repeats=request.repeats,
                sweep_id=plan.sweep_id,
                pool_wait_s=request.pool_wait_s,
                budget=budget,
                until_decided=until_decided,
                return_state=True,
            )
    except (KeyboardInterrupt, Terminated):
        return True
    return False


class Terminated(BaseException):
    """SIGTERM reached this process. The flow has dealt with it by then: Prefect passes the signal on to the handler that was there."""


def terminated(number: int, frame: object) -> None:
    raise Terminated
