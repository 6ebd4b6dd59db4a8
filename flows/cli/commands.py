"""`sweep`: plan, run, resume, look at, compare and stop sweeps. Composition of flows/ and tasks/ only."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flows.cli.errors import of_use
from flows.cli.options import (
    SUITE_HELP,
    BudgetOption,
    JsonOption,
    OnlyOption,
    PoolOption,
    PoolWaitOption,
    ProfileOption,
    RepeatsOption,
    SetOption,
    SuiteName,
    SweepId,
    UntilDecidedOption,
    app,
    clean_errors,
    err,
    out,
    print_error,
    print_json,
    suite_names,
    sweep_id_of,
    sweep_ids,
)
from flows.cli.start_sweep import request_of, start, tell
from flows.runtime import prefect_api


@clean_errors
def _version(wanted: bool) -> None:
    """Print the version and the commit of the code, and end."""
    if wanted:
        from importlib.metadata import version

        from cluster.git_state import git_state

        state = git_state()
        commit = f", commit {state['commit'][:12]}{' with changes' if state['dirty'] else ''}" if state else ""
        out.print(f"sweepbench {version('sweepbench')}{commit}", highlight=False)
        raise typer.Exit


@app.callback()
def sweep_options(
    version: Annotated[bool, typer.Option("--version", help="print the version and the commit", callback=_version, is_eager=True)] = False,
) -> None:
    """Run a workload through every combination of accelerator, precision, data loading and model; say which is faster, and how sure."""


@app.command(epilog="Examples: sweep plan bridgetower --profile smoke --only precision=bf16 · sweep plan --sweep last")
@clean_errors
def plan(
    suite: Annotated[str | None, typer.Argument(help=f"{SUITE_HELP}; not with --sweep", autocompletion=suite_names)] = None,
    profile: ProfileOption = "auto",
    pool: PoolOption = None,
    set_: SetOption = None,
    only: OnlyOption = None,
    repeats: RepeatsOption = None,
    budget: BudgetOption = None,
    until_decided: UntilDecidedOption = None,
    sweep: Annotated[str | None, typer.Option("--sweep", help="show what is left of this sweep instead", autocompletion=sweep_ids)] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the expanded matrix, what of it is done, and how long it would take. Starts nothing."""
    from experiments.config.errors import ConfigError
    from flows.cli import show_plan
    from tasks.sweep import plan as planning
    from tasks.sweep.store import SweepStore

    if (suite is None) == (sweep is None):
        raise ConfigError.one("SUITE, --sweep", None, "", "both are given" if suite else "neither is given", "give one of the two")
    if sweep:
        sweep_plan = planning.renew(SweepStore(sweep_id_of(sweep)).load_plan(), build_environments=False)
        against: str | None = sweep_plan.sweep_id
        states = planning.states(sweep_plan)
    else:
        assert suite is not None
        request = request_of(suite, profile, pool, set_, only, repeats, budget=budget, until_decided=until_decided)
        sweep_plan, _ = planning.make_plan(request, build_environments=False)
        against, states = planning.compare_with_last(sweep_plan)
    expected, lacking = planning.expected_seconds(sweep_plan), planning.lacking_pools(sweep_plan.trials)
    if as_json:
        print_json(show_plan.plan_json(sweep_plan, states, expected, against, lacking))
    else:
        show_plan.print_plan(out, sweep_plan, states, expected, against, auto=profile == "auto" and not sweep)
        show_plan.print_lacking(out, lacking)


@app.command(epilog="Examples: sweep run bridgetower · sweep run bridgetower --pool cpu --set steps=50 --only model=tiny --repeats 3")
@clean_errors
def run(
    suite: SuiteName,
    profile: ProfileOption = "auto",
    pool: PoolOption = None,
    set_: SetOption = None,
    only: OnlyOption = None,
    repeats: RepeatsOption = None,
    budget: BudgetOption = None,
    until_decided: UntilDecidedOption = None,
    pool_wait: PoolWaitOption = None,
    profile_steps: Annotated[
        int | None,
        typer.Option(
            "--profile-steps",
            min=1,
            max=100,
            help="trace so many steps of each trial after its measured window: artifact trace.json.gz, and a table in the report",
        ),
    ] = None,
) -> None:
    """Run a suite: every trial of its matrix, then the comparison."""
    from cluster.pools.busy import Look

    look = Look()  # while the plan is made
    from tasks.sweep.plan import make_plan

    if profile_steps is not None:
        set_ = [*(set_ or []), f"profile_steps={profile_steps}"]
    request = request_of(suite, profile, pool, set_, only, repeats, budget=budget, until_decided=until_decided)
    sweep_plan, _ = make_plan(request.model_copy(update={"pool_wait_s": pool_wait}), say=tell)
    raise typer.Exit(start(sweep_plan, look))


@app.command(epilog="Examples: sweep resume last · sweep resume last --budget 20m")
@clean_errors
def resume(
    sweep_id: SweepId,
    pool_wait: PoolWaitOption = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="for so much more time, 20m or 1h30m: first what there was no time for before, then more rounds of what is undecided",
        ),
    ] = None,
    until_decided: UntilDecidedOption = None,
    crashed: Annotated[
        bool, typer.Option("--crashed", help="run trials that crashed again too: what made them crash was mended, and was no code or data")
    ] = False,
) -> None:
    """Go on with an interrupted sweep: only what is not done is run, and why is said. With --budget, go on with one that has ended."""
    from cluster.pools.busy import Look
    from experiments.config.duration import option_seconds
    from flows.cli import show_plan
    from flows.cli.run_sweep import run_sweep
    from tasks.rounds.budget import deadline_of, gone_on_with
    from tasks.sweep.crashed_again import crashed_again, left_with_crashed
    from tasks.sweep.deadline import held_to
    from tasks.sweep.plan import check_configured, states
    from tasks.sweep.store import SweepStore
    from tasks.sweep.what_is_left import what_is_left

    look = Look()  # while the plan is renewed
    store = SweepStore(sweep_id_of(sweep_id))
    seconds = None if budget is None else option_seconds("--budget", budget)
    sweep_plan = gone_on_with(store, seconds, until_decided, tell, crashed=crashed)
    left = left_with_crashed(store, sweep_plan) if crashed else what_is_left(store, sweep_plan)
    check_configured(sweep_plan, [*left.begun, *left.rest])
    ends = deadline_of(store, sweep_plan, left, seconds)
    if crashed:
        sweep_plan = crashed_again(store, sweep_plan)  # after all that may refuse it: it writes
    if pool_wait is not None:
        sweep_plan = sweep_plan.model_copy(update={"request": sweep_plan.request.model_copy(update={"pool_wait_s": pool_wait})})
    show_plan.print_why_again(err, states(sweep_plan))
    with held_to(ends):
        raise typer.Exit(run_sweep(sweep_plan, out, err, look, budget=budget, until_decided=until_decided))


@app.command(epilog="Example: sweep stop last --reason 'the room is too warm'")
@clean_errors
def stop(
    sweep_id: SweepId,
    reason: Annotated[str, typer.Option("--reason", help="kept with the trials it stops")] = "stopped by `sweep stop`",
) -> None:
    """Stop a running sweep: its trials and all their processes end, their runs become KILLED. `sweep resume` goes on later."""
    from flows.cli.stop import stop_sweep
    from tasks.sweep.store import SweepStore

    raise typer.Exit(stop_sweep(SweepStore(sweep_id_of(sweep_id)), reason, out))


@app.command(epilog="Examples: sweep suites · sweep suites --json")
@clean_errors
def suites(as_json: JsonOption = False) -> None:
    """The suites that can be run."""
    from flows.cli import show_catalog

    rows = show_catalog.suite_rows()
    print_json(rows) if as_json else show_catalog.print_suites(out, rows)


@app.command(epilog="Examples: sweep pools · sweep pools --json")
@clean_errors
def pools(as_json: JsonOption = False) -> None:
    """The node pools: whether they answer, what is free, their versions, and what is wrong with them."""
    from flows.cli import show_catalog

    rows = show_catalog.pool_rows()
    print_json(rows) if as_json else show_catalog.print_pools(out, rows)


@app.command(epilog="Examples: sweep spread · sweep spread --metric step_time_median_s · sweep spread --rebuild")
@clean_errors
def spread(
    metric: Annotated[str, typer.Option("--metric", help="a summary metric, as in docs/metrics.md")] = "throughput",
    rebuild: Annotated[bool, typer.Option("--rebuild", help="first read every sweep again; files of removed sweeps stay")] = False,
    as_json: JsonOption = False,
) -> None:
    """How far trials and sweeps of each workload, and hosts, lie apart on each pool and device, learned from past sweeps."""
    from flows.cli import show_spread

    if rebuild:
        show_spread.rebuild_spreads(err)
    rows = show_spread.spread_rows(metric, err)
    print_json(rows) if as_json else show_spread.print_spreads(out, rows, metric)


@app.command(epilog="Examples: sweep ui · sweep ui last --port 5001 --no-open")
@clean_errors
def ui(
    sweep_id: Annotated[
        str | None,
        typer.Argument(help="whose charts are shown: a sweep's id, or `last`; the newest if not given", autocompletion=sweep_ids),
    ] = None,
    port: Annotated[int, typer.Option(help="port on 127.0.0.1", min=1024, max=65535)] = 5000,
    open_: Annotated[
        bool | None, typer.Option("--open/--no-open", help="open the charts in the browser; else if there is a screen")
    ] = None,
) -> None:
    """The MLflow UI on the local store, at the charts of a sweep."""
    from flows.cli.ui import serve

    raise typer.Exit(serve(port, None if sweep_id is None else sweep_id_of(sweep_id), out, open_=open_))


_INTERRUPTED = 130  # typer's status for Ctrl-C while a command was still making its plan; later the session ends in order


def main() -> None:
    """The console script. A wrong option is an error of use: status 1, since 2 means that trials failed."""
    try:
        status = app(standalone_mode=False, prog_name="sweep", args=sys.argv[1:] or ["--help"])
        if status == _INTERRUPTED:
            raise KeyboardInterrupt
    except (typer.Abort, KeyboardInterrupt):
        print_error("interrupted; `sweep list` shows a sweep that was begun")
        status = 1
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's errors of use; typer brings its own copy of click, so no class can be named
            raise
        print_error(of_use(error))
        status = 1
    prefect_api.leave(status or 0)


from flows.cli import aa as _aa  # noqa: E402, F401 - adds its commands
from flows.cli import ab as _ab  # noqa: E402, F401 - adds its command
from flows.cli import campaign as _campaigns  # noqa: E402, F401 - adds its command
from flows.cli import data as _data  # noqa: E402, F401 - adds its commands
from flows.cli import export as _export  # noqa: E402, F401 - adds its command
from flows.cli import import_others as _import_others  # noqa: E402, F401 - adds its command
from flows.cli import look_at as _look_at  # noqa: E402, F401 - adds its commands
from flows.cli import new as _new  # noqa: E402, F401 - adds its commands
from flows.cli import nightly as _nights  # noqa: E402, F401 - adds its commands
from flows.cli import schema as _schema  # noqa: E402, F401 - adds its command
from flows.cli import site as _site  # noqa: E402, F401 - adds its command
from flows.cli import tune as _tune  # noqa: E402, F401 - adds its command
