"""What the command line's modules share: the application, its consoles, its options, its way to say what is wrong."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from flows.cli.application import Application
from flows.cli.complete import axis_values, profile_choices, quiet, settings
from flows.cli.errors import line_of

app = Application(
    name="sweep",
    help="Run a workload through every combination of accelerator, precision, data loading and model; say which is faster, and how sure.",
    epilog="Exit status: 0 every trial ok or an expected outcome (does_not_fit, unsupported); 2 trial failures recorded; "
    "3 a night or `sweep ab` found something worse; 4 `sweep ab` could not decide; 1 anything else.",
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


@quiet
def suite_names() -> list[str]:
    from experiments.spec.load import list_suites

    return [info.name for info in list_suites()]


@quiet
def workload_names() -> list[str]:
    from experiments import workloads

    return workloads.names()


@quiet
def sweep_ids() -> list[str]:
    from tasks.sweep.store import list_sweeps

    return ["last", *list_sweeps()]


@quiet
def _pool_names() -> list[str]:
    from cluster.pools.pool import load_pools

    return list(load_pools())


SUITE_HELP = "a suite's name (`sweep suites`) or the path of a YAML file"
SuiteName = Annotated[str, typer.Argument(help=SUITE_HELP, autocompletion=suite_names)]
SweepId = Annotated[str, typer.Argument(help="a sweep's id (`sweep list`), or `last`", autocompletion=sweep_ids)]
ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile",
        "-p",
        help="a profile of the suite; `full` is the suite as written; `auto`: full where an accelerator pool answers, else smoke",
        autocompletion=profile_choices,
    ),
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option("--pool", help="use this pool instead of the suite's (repeat for more)", autocompletion=_pool_names),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="fix a workload parameter: key=value (repeat for more)", metavar="KEY=VALUE", autocompletion=settings),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        help="keep only cells with this axis value: axis=value (repeat for more)",
        metavar="AXIS=VALUE",
        autocompletion=axis_values,
    ),
]
RepeatsOption = Annotated[int | None, typer.Option("--repeats", "-n", min=1, help="how often each cell is measured, interleaved")]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget", metavar="TIME", help="rounds of all cells in turns while another fits in it: 25m, 1h30m; instead of --repeats"
    ),
]
UntilDecidedOption = Annotated[
    bool | None,
    typer.Option("--until-decided/--no-until-decided", help="with --budget: cells whose comparison is decided take part in no more rounds"),
]
PoolWaitOption = Annotated[
    float | None,
    typer.Option("--pool-wait", min=0, help="seconds trials wait for a pool that is down, then end as infra; else as the pool says"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]


def print_error(text: str) -> None:
    """The one look of every error that ends a command."""
    err.print(f"[bold red]error:[/] {escape(text)}", highlight=False, soft_wrap=True)


def end_if_left_out(problems: Sequence[str]) -> None:
    """Name what damaged files keep out of a command's results, and end it with status 1; nothing where there is none."""
    for problem in problems:
        err.print(f"left out: {problem}", style="red", highlight=False, markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


def clean_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Every error is printed as a message, without a traceback, and ends with status 1. See flows/cli/errors.py."""

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except Exception as error:
            if isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "show"):  # click's own: how to leave, errors of use
                raise
            print_error(line_of(error))
            raise typer.Exit(1) from None

    return wrapped


def sweep_id_of(text: str) -> str:
    """The sweep's id; `last` is that of the newest. Raises StoreError where there is none."""
    from tasks.sweep.find_sweep import LAST, newest_sweep

    return newest_sweep() if text == LAST else text


def print_json(value: Any) -> None:
    """To standard output, alone."""
    sys.stdout.write(json.dumps(value, indent=1, allow_nan=False, default=str) + "\n")
