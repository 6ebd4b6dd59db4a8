"""`sweep`: plan, run, resume, look at, compare and stop sweeps. Composition of flows/ and tasks/ only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.ab_comment import STDOUT, check_comment, write_comment
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
    print_json,
    suite_names,
    sweep_ids,
)
from flows.cli.start_sweep import request_of, start, tell
from flows.runtime import prefect_api


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
    from flows.cli import show_plan
    from tasks.sweep import plan as planning
    from tasks.sweep.store import SweepStore

    if (suite is None) == (sweep is None):
        raise typer.BadParameter("give a suite, or --sweep and a sweep's id: one of the two")
    if sweep:
        sweep_plan = planning.renew(SweepStore(_sweep_id(sweep)).load_plan(), build_environments=False)
        against: str | None = sweep_plan.sweep_id
        states = planning.states(sweep_plan)
    else:
        assert suite is not None
        request = request_of(suite, profile, pool, set_, only, repeats, budget=budget, until_decided=until_decided)
        sweep_plan, _ = planning.make_plan(request, build_environments=False)
        against, states = planning.compare_with_last(sweep_plan)
    expected = planning.expected_seconds(sweep_plan)
    if as_json:
        print_json(show_plan.plan_json(sweep_plan, states, expected, against))
    else:
        show_plan.print_plan(out, sweep_plan, states, expected, against, auto=profile == "auto" and not sweep)


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
        typer.Option("--budget", metavar="TIME", help="then more rounds of what is undecided, for so much more time: 20m, 1h30m"),
    ] = None,
    until_decided: UntilDecidedOption = None,
) -> None:
    """Go on with an interrupted sweep: only what is not done is run, and why is said. With --budget, go on with one that has ended."""
    from cluster.pools.busy import Look
    from experiments.config.duration import option_seconds
    from flows.cli import show_plan
    from flows.cli.run_sweep import run_sweep
    from tasks.rounds.budget import with_budget
    from tasks.sweep.plan import check_configured, renew, states
    from tasks.sweep.store import SweepStore
    from tasks.sweep.what_is_left import what_is_left

    look = Look()  # while the plan is renewed
    store = SweepStore(_sweep_id(sweep_id))
    sweep_plan = renew(store.load_plan(), say=tell)
    if budget is not None or until_decided is not None:
        seconds = None if budget is None else option_seconds("--budget", budget)
        sweep_plan = with_budget(store, sweep_plan, seconds, until_decided)
    left = what_is_left(store, sweep_plan)
    check_configured(sweep_plan, [*left.begun, *left.rest])
    if pool_wait is not None:
        sweep_plan = sweep_plan.model_copy(update={"request": sweep_plan.request.model_copy(update={"pool_wait_s": pool_wait})})
    show_plan.print_why_again(err, states(sweep_plan))
    raise typer.Exit(run_sweep(sweep_plan, out, err, look, budget=budget, until_decided=until_decided))


@app.command("list", epilog="Examples: sweep list · sweep list --json")
@clean_errors
def list_(as_json: JsonOption = False) -> None:
    """Sweeps on this machine, newest first."""
    from flows.cli import show_sweeps

    rows = show_sweeps.sweep_rows()
    print_json(rows) if as_json else show_sweeps.print_sweeps(out, rows)


@app.command(name="show", epilog="Example: sweep show last")
@clean_errors
def show_(sweep_id: SweepId, as_json: JsonOption = False) -> None:
    """One sweep: its trials, their outcomes and figures."""
    from flows.cli import show_sweeps
    from tasks.sweep.store import SweepStore

    store = SweepStore(_sweep_id(sweep_id))
    print_json(show_sweeps.sweep_json(store)) if as_json else show_sweeps.print_sweep(out, store)


@app.command(epilog="Example: sweep report last --open")
@clean_errors
def report(
    sweep_id: SweepId,
    open_: Annotated[bool, typer.Option("--open", help="open report.html in the browser")] = False,
    emulated: Annotated[bool, typer.Option("--emulated", help="of the trials on an emulated device, by themselves and marked")] = False,
    markdown: Annotated[
        str | None, typer.Option("--markdown", metavar="FILE", help="of `sweep ab`: also the comment for a pull request; - prints it")
    ] = None,
) -> None:
    """Derive results, report and figures again from the raw steps, and print the comparison.

    Trials whose files are damaged are named and left out; the exit status is then 1.
    """
    from flows.cli import show_comparison
    from tasks.analysis.results import renew_steps
    from tasks.report.write import write_report
    from tasks.sweep.store import SweepStore

    store = SweepStore(_sweep_id(sweep_id))
    if markdown is not None:
        check_comment(markdown, store.load_plan())
    paths = write_report(store.dir, emulated=emulated)
    renew_steps(store.dir, store.load_plan())
    page = err if markdown == STDOUT else out
    show_comparison.print_comparison(page, store, emulated=emulated, made=paths.made)
    page.print(f"report: {paths.html}", highlight=False, soft_wrap=True)
    if markdown is not None:
        write_comment(markdown, store)
    for problem in paths.damage:
        err.print(f"left out: {problem}", style="red", highlight=False, markup=False, soft_wrap=True)
    if open_:
        typer.launch(paths.html.as_uri())
    if paths.damage:
        raise typer.Exit(1)


@app.command(
    epilog="Examples: sweep publish last --to docs/results/vit-h200 · sweep publish --check docs/results/vit-h200",
)
@clean_errors
def publish(
    sweep_ids_: Annotated[
        list[str] | None, typer.Argument(metavar="[SWEEP]...", help="sweeps' ids, or `last`; each whole", autocompletion=sweep_ids)
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="folder of the page; an earlier page of this command is replaced")] = None,
    check: Annotated[Path | None, typer.Option("--check", help="tell instead whether this page is as it was written")] = None,
) -> None:
    """Write a results page from whole sweeps: plans, raw steps, reports, a README, a manifest. Refuses what was edited or put together."""
    from tasks.report.manifest import check_published
    from tasks.report.publish import publish as publish_sweeps
    from tasks.sweep.store import SweepStore

    if (check is None) == (to is None) or bool(sweep_ids_) == (to is None):
        raise typer.BadParameter("give sweeps and --to FOLDER, or --check FOLDER alone")
    if to is not None:
        readme = publish_sweeps([SweepStore(_sweep_id(sweep_id)) for sweep_id in sweep_ids_ or []], to)
        out.print(f"published: {readme}", highlight=False, soft_wrap=True)
        return
    assert check is not None
    problems = check_published(check)
    for problem in problems:
        err.print(problem, highlight=False, markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)
    out.print(f"{check} is as it was written", highlight=False, soft_wrap=True)


@app.command(epilog="Example: sweep compare bridgetower-20261101-020000-1a2b last")
@clean_errors
def compare(sweep_a: SweepId, sweep_b: SweepId) -> None:
    """Compare two sweeps cell by cell: how much faster or slower B is, and how sure."""
    from flows.cli import show_comparison
    from tasks.sweep.store import SweepStore

    show_comparison.print_two_sweeps(out, SweepStore(_sweep_id(sweep_a)), SweepStore(_sweep_id(sweep_b)))


@app.command(epilog="Example: sweep stop last --reason 'the room is too warm'")
@clean_errors
def stop(
    sweep_id: SweepId,
    reason: Annotated[str, typer.Option("--reason", help="kept with the trials it stops")] = "stopped by `sweep stop`",
) -> None:
    """Stop a running sweep: its trials and all their processes end, their runs become KILLED. `sweep resume` goes on later."""
    from flows.cli.stop import stop_sweep
    from tasks.sweep.store import SweepStore

    raise typer.Exit(stop_sweep(SweepStore(_sweep_id(sweep_id)), reason, out))


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
    """How far trials, sweeps and hosts lie apart on each pool and device, learned from past sweeps."""
    from flows.cli import show_spread

    if rebuild:
        show_spread.rebuild_spreads(err)
    rows = show_spread.spread_rows(metric, err)
    print_json(rows) if as_json else show_spread.print_spreads(out, rows, metric)


@app.command(epilog="Example: sweep ui --port 5001")
@clean_errors
def ui(port: Annotated[int, typer.Option(help="port on 127.0.0.1", min=1024, max=65535)] = 5000) -> None:
    """The MLflow UI on the local store."""
    from flows.cli.ui import serve

    raise typer.Exit(serve(port, out, err))


def _sweep_id(text: str) -> str:
    from tasks.sweep.store import StoreError, list_sweeps

    if text != "last":
        return text
    sweeps = list_sweeps()
    if not sweeps:
        raise StoreError("there is no sweep yet; `sweep run bridgetower` makes one")
    return sweeps[0]


def main() -> None:
    """The console script. A wrong option is an error of use: status 1, since 2 means that trials failed."""
    try:
        status = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        status = 1
    except Exception as error:
        show = getattr(error, "show", None)  # click's errors of use; typer brings its own copy of click, so no class can be named
        if show is None:
            raise
        show()
        status = 1
    prefect_api.leave(status or 0)


from flows.cli import aa as _aa  # noqa: E402, F401 - adds its commands
from flows.cli import ab as _ab  # noqa: E402, F401 - adds its command
from flows.cli import campaign as _campaigns  # noqa: E402, F401 - adds its command
from flows.cli import nightly as _nights  # noqa: E402, F401 - adds its commands
from flows.cli import tune as _tune  # noqa: E402, F401 - adds its command
