"""`sweep`: plan, run, resume, look at, compare and stop sweeps. Composition of flows/ and tasks/ only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

app = typer.Typer(
    name="sweep",
    help="Run a workload through every combination of accelerator, precision, data loading and model; say which is faster, and how sure.",
    epilog="Exit status: 0 every trial ok or an expected outcome (does_not_fit, unsupported); 2 trial failures recorded; 1 anything else.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _console(*, stderr: bool) -> Console:
    """A pipe or a file has no width: then one wide enough that no name is broken."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() or "COLUMNS" in os.environ else 160)


out, err = _console(stderr=False), _console(stderr=True)


def _suite_names() -> list[str]:
    from experiments.suite import list_suites

    return [info.name for info in list_suites()]


def _sweep_ids() -> list[str]:
    from tasks.store import list_sweeps

    return ["last", *list_sweeps()]


def _pool_names() -> list[str]:
    from cluster.pools import load_pools

    return list(load_pools())


_SUITE_HELP = "a suite's name (`sweep suites`) or the path of a YAML file"
SuiteName = Annotated[str, typer.Argument(help=_SUITE_HELP, autocompletion=_suite_names)]
SweepId = Annotated[str, typer.Argument(help="a sweep's id (`sweep list`), or `last`", autocompletion=_sweep_ids)]
ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile",
        "-p",
        help="a profile of the suite; `full` is the suite as written; `auto`: full where an accelerator pool answers, else smoke",
    ),
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option("--pool", help="use this pool instead of the suite's (repeat for more)", autocompletion=_pool_names),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="fix a workload parameter: key=value (repeat for more)", metavar="KEY=VALUE")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", help="keep only cells with this axis value: axis=value (repeat for more)", metavar="AXIS=VALUE"),
]
RepeatsOption = Annotated[int | None, typer.Option("--repeats", "-n", min=1, help="how often each cell is measured, interleaved")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]


def _clean_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """What is the user's to mend is printed as a message, without a traceback, and ends with status 1."""

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        from cluster.journal import JournalError
        from cluster.pools import PoolError
        from experiments.yaml_strict import ConfigError
        from flows.own_prefect import PrefectServerError
        from tasks.dataset import DatasetError
        from tasks.results import ResultsError
        from tasks.store import StoreError

        try:
            return command(*arguments, **options)
        except (ConfigError, PoolError, DatasetError, StoreError, JournalError, ResultsError, PrefectServerError) as error:
            err.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
            raise typer.Exit(1) from None

    return wrapped


@app.command(epilog="Examples: sweep plan bridgetower --profile smoke --only precision=bf16 · sweep plan --sweep last")
@_clean_errors
def plan(
    suite: Annotated[str | None, typer.Argument(help=f"{_SUITE_HELP}; not with --sweep", autocompletion=_suite_names)] = None,
    profile: ProfileOption = "auto",
    pool: PoolOption = None,
    set_: SetOption = None,
    only: OnlyOption = None,
    repeats: RepeatsOption = None,
    sweep: Annotated[str | None, typer.Option("--sweep", help="show what is left of this sweep instead", autocompletion=_sweep_ids)] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the expanded matrix, what of it is done, and how long it would take. Starts nothing."""
    from flows import show
    from tasks import plan as planning
    from tasks.store import SweepStore

    if (suite is None) == (sweep is None):
        raise typer.BadParameter("give a suite, or --sweep and a sweep's id: one of the two")
    if sweep:
        wanted = planning.renew(SweepStore(_sweep_id(sweep)).load_plan())
        against: str | None = wanted.sweep_id
        found = planning.states(wanted)
    else:
        assert suite is not None
        wanted, _ = planning.make_plan(_request(suite, profile, pool, set_, only, repeats))
        against, found = planning.compare_with_last(wanted)
    expected = planning.expected_seconds(wanted)
    if as_json:
        _print_json(show.plan_json(wanted, found, expected, against))
    else:
        show.plan(out, wanted, found, expected, against, auto=profile == "auto" and not sweep)


@app.command(epilog="Examples: sweep run bridgetower · sweep run bridgetower --pool cpu --set steps=50 --only model=tiny --repeats 3")
@_clean_errors
def run(
    suite: SuiteName,
    profile: ProfileOption = "auto",
    pool: PoolOption = None,
    set_: SetOption = None,
    only: OnlyOption = None,
    repeats: RepeatsOption = None,
) -> None:
    """Run a suite: every trial of its matrix, then the comparison."""
    from experiments.folders import runs_root
    from flows.run import run_sweep
    from tasks.plan import make_plan
    from tasks.store import StoreError, SweepStore

    wanted, _ = make_plan(_request(suite, profile, pool, set_, only, repeats))
    if profile == "auto":
        pools_used = ", ".join(dict.fromkeys(trial.pool for trial in wanted.trials))
        err.print(f"profile auto: took [bold]{wanted.profile}[/], pool {pools_used}", highlight=False)
    try:
        SweepStore(wanted.sweep_id).save_plan(wanted)
    except OSError as error:
        raise StoreError(f"{runs_root()} cannot be written ({error.strerror}); SWEEPBENCH_RUNS names another folder") from None
    raise typer.Exit(run_sweep(wanted, out, err))


@app.command(epilog="Example: sweep resume last")
@_clean_errors
def resume(sweep_id: SweepId) -> None:
    """Go on with an interrupted sweep: only what is not done is run, and why is said."""
    from flows import show
    from flows.run import run_sweep
    from tasks.plan import renew, states
    from tasks.store import SweepStore

    wanted = renew(SweepStore(_sweep_id(sweep_id)).load_plan())
    show.why_again(err, states(wanted))
    raise typer.Exit(run_sweep(wanted, out, err))


@app.command("list", epilog="Examples: sweep list · sweep list --json")
@_clean_errors
def list_(as_json: JsonOption = False) -> None:
    """Sweeps on this machine, newest first."""
    from flows import show

    rows = show.sweep_rows()
    _print_json(rows) if as_json else show.sweeps(out, rows)


@app.command(name="show", epilog="Example: sweep show last")
@_clean_errors
def show_(sweep_id: SweepId, as_json: JsonOption = False) -> None:
    """One sweep: its trials, their outcomes and figures."""
    from flows import show
    from tasks.store import SweepStore

    store = SweepStore(_sweep_id(sweep_id))
    _print_json(show.sweep_json(store)) if as_json else show.sweep(out, store)


@app.command(epilog="Example: sweep report last --open")
@_clean_errors
def report(
    sweep_id: SweepId,
    open_: Annotated[bool, typer.Option("--open", help="open report.html in the browser")] = False,
    emulated: Annotated[bool, typer.Option("--emulated", help="of the trials on an emulated device, by themselves and marked")] = False,
) -> None:
    """Derive results, report and figures again from the raw steps, and print the comparison."""
    from flows import show
    from tasks.report import write_report
    from tasks.results import write_steps
    from tasks.store import SweepStore

    store = SweepStore(_sweep_id(sweep_id))
    for trial in store.load_plan().trials:
        if (store.trial_dir(trial.key) / "journal.jsonl").exists():
            write_steps(store.trial_dir(trial.key))
    paths = write_report(store.dir, emulated=emulated)
    show.comparison(out, store, emulated=emulated)
    out.print(f"report: {paths.html}", highlight=False, soft_wrap=True)
    if open_:
        typer.launch(paths.html.as_uri())


@app.command(epilog="Example: sweep compare bridgetower-20261101-020000-1a2b last")
@_clean_errors
def compare(sweep_a: SweepId, sweep_b: SweepId) -> None:
    """Compare two sweeps cell by cell: how much faster or slower B is, and how sure."""
    from flows import show
    from tasks.store import SweepStore

    show.two_sweeps(out, SweepStore(_sweep_id(sweep_a)), SweepStore(_sweep_id(sweep_b)))


@app.command(epilog="Example: sweep stop last --reason 'the room is too warm'")
@_clean_errors
def stop(
    sweep_id: SweepId,
    reason: Annotated[str, typer.Option("--reason", help="kept with the trials it stops")] = "stopped by `sweep stop`",
) -> None:
    """Stop a running sweep: its trials and all their processes end, their runs become KILLED. `sweep resume` goes on later."""
    from flows.stop import stop_sweep
    from tasks.store import SweepStore

    raise typer.Exit(stop_sweep(SweepStore(_sweep_id(sweep_id)), reason, out))


@app.command(epilog="Examples: sweep suites · sweep suites --json")
@_clean_errors
def suites(as_json: JsonOption = False) -> None:
    """The suites that can be run."""
    from flows import show

    rows = show.suite_rows()
    _print_json(rows) if as_json else show.suites(out, rows)


@app.command(epilog="Examples: sweep pools · sweep pools --json")
@_clean_errors
def pools(as_json: JsonOption = False) -> None:
    """The node pools, and whether they answer."""
    from flows import show

    rows = show.pool_rows()
    _print_json(rows) if as_json else show.pools(out, rows)


@app.command(epilog="Example: sweep ui --port 5001")
@_clean_errors
def ui(port: Annotated[int, typer.Option(help="port on 127.0.0.1", min=1024, max=65535)] = 5000) -> None:
    """The MLflow UI on the local store."""
    from flows.ui import serve

    raise typer.Exit(serve(port, out, err))


def _request(suite: str, profile: str, pool: list[str] | None, set_: list[str] | None, only: list[str] | None, repeats: int | None) -> Any:
    from tasks.store import Request

    only_values: dict[str, list[Any]] = {}
    for axis, value in _pairs("--only", only):
        only_values.setdefault(axis, []).append(value)
    return Request(suite=suite, profile=profile, pools=pool or [], set=dict(_pairs("--set", set_)), only=only_values, repeats=repeats)


def _pairs(option: str, texts: list[str] | None) -> list[tuple[str, Any]]:
    from experiments.yaml_strict import ConfigError, scalar

    found = []
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError.one(option, None, text, "is not KEY=VALUE", f"write it as {option} steps=50")
        found.append((name, scalar(value)))
    return found


def _sweep_id(text: str) -> str:
    from tasks.store import StoreError, list_sweeps

    if text != "last":
        return text
    sweeps = list_sweeps()
    if not sweeps:
        raise StoreError("there is no sweep yet; `sweep run bridgetower` makes one")
    return sweeps[0]


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1, allow_nan=False, default=str) + "\n")


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
    sys.exit(status or 0)


if __name__ == "__main__":
    main()
