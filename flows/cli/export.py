"""The command that writes a sweep for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import app, clean_errors, end_if_left_out, out, sweep_ids

FORMATS = ("csv", "parquet", "hf", "pytorch-hud")  # those of tasks/export/write.py, which takes seconds to import


@app.command(epilog="Examples: sweep export last --format csv --out tables · sweep export last --format hf --out my-dataset")
@clean_errors
def export(
    sweep: Annotated[str, typer.Argument(help="a sweep's id (`sweep list`), `last`, or its folder", autocompletion=sweep_ids)],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="csv, parquet: tables of cells, trials, steps; hf: those as a Hugging Face dataset folder; pytorch-hud: benchmark records",
            metavar="FORMAT",
            autocompletion=lambda: list(FORMATS),
        ),
    ],
    folder: Annotated[Path, typer.Option("--out", help="a new or empty folder, or an earlier export", metavar="DIR")],
) -> None:
    """Write a sweep's results for other programs. Each row says whether it is of an emulated device. Nothing is sent anywhere.

    Trials whose files are damaged are named, and have no value in what is written; the exit status is then 1.
    """
    from tasks.export.write import export_sweep
    from tasks.sweep.find_sweep import find_sweep

    exported = export_sweep(find_sweep(sweep), form, folder)
    for path in exported.files:
        out.print(str(path), highlight=False, markup=False, soft_wrap=True)
    end_if_left_out(exported.damage)
