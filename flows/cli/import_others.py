"""The command that reads results of others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import app, clean_errors, err, out


@app.command(
    "import",
    epilog="Examples: sweep import results/result_0.txt results/result_1.txt · sweep import runs/bert/benchmark.json --mlflow · "
    "sweep import .benchmarks/Linux-CPython-3.11-64bit/0001_run.json",
)
@clean_errors
def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="of one program: MLPerf Training, optimum-benchmark or pytest-benchmark")
    ],
    mlflow: Annotated[bool, typer.Option("--mlflow", help="write them to MLflow too, in an experiment of their own")] = False,
) -> None:
    """Keep what others measured beside the sweeps, marked as theirs: it is shown, and takes part in no comparison."""
    from flows.cli.show_imported import print_imported
    from tasks.imports.pages import write_pages
    from tasks.imports.store import import_files
    from tasks.sweep.store import SweepStore

    imported = import_files(files)
    folder = SweepStore(imported.sweep_id).dir
    page = write_pages(imported, folder)
    print_imported(out, imported, page)
    if mlflow:
        from tasks.imports.tracking import publish_imported

        try:
            out.print(f"MLflow: {publish_imported(imported, folder)}", highlight=False, soft_wrap=True)
        except Exception as error:
            err.print(f"MLflow did not take it: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
            raise typer.Exit(1) from None
