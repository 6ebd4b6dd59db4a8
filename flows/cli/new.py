"""The commands that write skeletons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.config.paths import EXTRA
from flows.cli.application import Application
from flows.cli.options import app, clean_errors, out, workload_names
from flows.cli.skeleton import Data

if TYPE_CHECKING:
    from flows.cli.skeleton import Written

new = Application(name="new", help="Write a workload or a suite to start from, which runs at once.", no_args_is_help=True)
app.add_typer(new)


ToOption = Annotated[
    Path | None, typer.Option("--to", help="folder for your workloads and suites; else the one of SWEEPBENCH_EXTRA", metavar="FOLDER")
]


@new.command(epilog="Example: sweep new workload flowers --data classes --to my-bench")
@clean_errors
def workload(
    name: Annotated[str, typer.Argument(help="of the workload and of its suite: a-z, 0-9 and _")],
    data: Annotated[
        Data, typer.Option("--data", help="what it reads: nothing (made in memory), images with classes, or pairs of image and caption")
    ] = Data.NONE,
    to: ToOption = None,
) -> None:
    """A workload that trains a small model of its own, and a suite that compares its cells."""
    from flows.cli.skeleton import write_workload

    with _target(to) as folder:
        written = write_workload(name, data, folder)
    _say(written, name)


@new.command(epilog="Example: sweep new suite my-towers --workload bridgetower --to my-bench")
@clean_errors
def suite(
    name: Annotated[str, typer.Argument(help="of the suite: a-z, 0-9, _ and -")],
    workload_: Annotated[str, typer.Option("--workload", "-w", help="the workload that it runs", autocompletion=workload_names)],
    to: ToOption = None,
) -> None:
    """A suite of a workload that is there."""
    from flows.cli.skeleton import write_suite

    with _target(to) as folder:
        written = write_suite(name, workload_, folder)
    _say(written, name)


@contextmanager
def _target(to: Path | None) -> Iterator[Path]:
    """The folder that the block writes to. Raises ConfigError, of what named it, where that cannot be."""
    from flows.cli.output import written_to
    from flows.cli.skeleton import target_folder

    folder = target_folder(to)
    with written_to(f"${EXTRA}" if to is None else "--to", folder, "folder"):
        yield folder


def _say(written: Written, name: str) -> None:
    for path in written.files:
        out.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)
    out.print("next:", highlight=False)
    for line in filter(None, [written.export, f"sweep run {name} --profile smoke"]):
        out.print(f"    {line}", highlight=False, markup=False, soft_wrap=True)
