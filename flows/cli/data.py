"""The commands about the user's own data."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.application import Application
from flows.cli.options import JsonOption, SetOption, app, clean_errors, out, print_json, workload_names
from flows.cli.start_sweep import once

if TYPE_CHECKING:
    from experiments.datasets.own.findings import State
    from tasks.sweep.own_data import Look

data = Application(name="data", help="Your own data.", no_args_is_help=True)
app.add_typer(data)

_COLOUR = {"found": "green", "guessed": "yellow", "made": "cyan", "missing": "bold red"}
_SHOWN = 10  # broken images


@data.command(epilog="Example: sweep data check ~/pictures --workload bridgetower --set caption_column=text")
@clean_errors
def check(
    path: Annotated[str, typer.Argument(help="a folder: Parquet, save_to_disk of datasets, or images (docs/extending.md)")],
    workload: Annotated[str, typer.Option("--workload", "-w", help="the workload that is to read it", autocompletion=workload_names)],
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look whether a workload can read your folder: what is there, what is guessed, what is missing and how to give it. Starts nothing."""
    from experiments import workloads
    from experiments.config.errors import ConfigError, choose
    from tasks.sweep.check_data import check_data

    if workload not in workloads.names():
        raise ConfigError.one("--workload", None, workload, "unknown workload", choose(workload, workloads.names()))
    sets = once("--set", set_)
    found = check_data(path, workload, sets)
    if as_json:
        print_json(_json(found, path, workload))
    else:
        _show(found, path, workload, [f"{name}={value}" for name, value in sets.items()])
    raise typer.Exit(0 if found.ready else 1)


def _json(check: Look, path: str, workload: str) -> dict[str, object]:
    found = check.found
    return {
        "path": path,
        "workload": workload,
        "what": found.table.what,
        "splits": {name: part.rows for name, part in found.table.parts.items()},
        "findings": [{"state": one.state, "what": one.what, "text": one.text, "give": one.give} for one in found.findings],
        "images_looked_at": check.looked,
        "images_broken": check.broken,
        "ready": check.ready,
    }


def _show(check: Look, path: str, workload: str, sets: list[str]) -> None:
    from rich.text import Text

    out.print(f"{path}: {check.found.table.what}, for workload {workload}", highlight=False, markup=False, soft_wrap=True)
    lines: list[tuple[State, str]] = [(one.state, str(one)) for one in check.found.findings]
    if check.looked:
        decoded = f"images: {check.looked - len(check.broken)} of the first {check.looked} can be decoded"
        lines.append(("missing" if check.too_many_broken else "found", decoded))
    for state, text in lines:
        out.print(Text(f"  {state:8}", style=_COLOUR[state]).append(text, style="default"), soft_wrap=True)
    for line in check.broken[:_SHOWN]:
        out.print(f"            {line}", highlight=False, markup=False, soft_wrap=True)
    if len(check.broken) > _SHOWN:
        out.print(f"            and {len(check.broken) - _SHOWN} more", highlight=False)
    options = " ".join(["--set", shlex.quote(f"dataset={path}"), *(f"--set {shlex.quote(one)}" for one in sets)])
    ready = f"ready: sweep run {_suite_of(workload)} {options}"
    out.print(ready if check.ready else "not ready: give what is missing", highlight=False, markup=False, soft_wrap=True)


def _suite_of(workload: str) -> str:
    """A suite that runs the workload: that of its name, where there are several."""
    from experiments.spec.load import list_suites

    suites = [info.name for info in list_suites() if info.workload == workload]
    return workload if workload in suites else next(iter(suites), "SUITE")
