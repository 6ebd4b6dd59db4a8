"""Run the flow in this process for the command line: no server needed, the live table on the terminal, the exit status at the end."""

from __future__ import annotations

import os

from rich.console import Console

from cluster.stack.settings import environment
from tasks.plan import expected_seconds
from tasks.store import Plan, SweepBusy, SweepStore

_QUIET = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "ERROR",  # the live table is what a person reads; Prefect's UI has the log
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}


def prepare_environment() -> str | None:
    """Settings that Prefect and MLflow read when they are imported. Returns the URL of the Prefect server to use, None for our own.

    A stack started by `make up` is used if it is up, so that its UIs show the sweep; else Prefect runs inside this process.
    """
    asked = os.environ.get("PREFECT_API_URL")
    for name, value in {**environment(), **_QUIET}.items():
        os.environ.setdefault(name, value)
    # empty, not absent: a prefect.toml that a dead stack left behind must not send us to its server
    os.environ["PREFECT_API_URL"] = asked or os.environ.get("PREFECT_API_URL", "")
    return os.environ["PREFECT_API_URL"] or None


def run_sweep(plan: Plan, out: Console, err: Console) -> int:
    """Run what is left of a planned sweep; returns the exit status. Raises SweepBusy if another process works on it."""
    store = SweepStore(plan.sweep_id)
    if store.is_held():
        with store.lease():  # raises, naming the holder
            pass
    server = prepare_environment()
    err.print(f"sweep [bold]{plan.sweep_id}[/]: {len(plan.trials)} trials, results in {store.dir}", highlight=False, soft_wrap=True)
    err.print(f"Prefect: {server or 'inside this process'}", highlight=False)

    from flows import board as boards
    from flows import live, show
    from flows.sweep import sweep

    board = boards.Board(plan.trials, expected_seconds(plan))
    board.note = "starting Prefect"
    boards.CURRENT.set(board)
    request = plan.request
    interrupted = False
    try:
        with live.show(board, err):
            sweep(
                suite=request.suite,
                profile=request.profile,
                pools=request.pools,
                set=request.set,
                only=request.only,
                repeats=request.repeats,
                sweep_id=plan.sweep_id,
                return_state=True,
            )
    except KeyboardInterrupt:
        interrupted = True
    except SweepBusy:
        raise
    status = store.load_status()
    show.comparison(out, store)
    show.where(out, store)
    if status is None:
        err.print(f"[bold red]the sweep did not start its trials[/]; `sweep resume {plan.sweep_id}` tries again")
        return 1
    colour = {0: "green", 2: "yellow"}.get(status["status"], "red")
    err.print(f"[{colour}]{status['message']}[/]", highlight=False, soft_wrap=True)
    if interrupted or status["status"] == 1:
        err.print(f"go on with it: sweep resume {plan.sweep_id}", highlight=False, soft_wrap=True)
    return 1 if interrupted else int(status["status"])
