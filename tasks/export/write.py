"""Write a sweep in a form that other programs read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from experiments.atomic_file import atomic_file, atomic_write
from experiments.config.error_text import why_not_written
from experiments.config.errors import ConfigError, UserError
from tasks.analysis.results import load_sweep
from tasks.export.dataset_card import dataset_card
from tasks.export.pytorch_hud import hud_text
from tasks.export.tables import all_cells, tables_of


class Format(StrEnum):
    """What `sweep export` writes."""

    CSV = "csv"  # cells.csv, trials.csv, steps.csv
    PARQUET = "parquet"  # the same tables, typed
    HF = "hf"  # a Hugging Face dataset: those Parquet files and README.md, its card
    PYTORCH_HUD = "pytorch-hud"  # benchmark_results.json, version 3 of PyTorch's benchmark records


class ExportError(UserError):
    """The files cannot be written. The message names the folder."""


class Exported(NamedTuple):
    """What was written; `damage`: a sentence for each trial that is left out, since its files are damaged."""

    files: list[Path]
    damage: list[str]


def export_sweep(sweep_dir: Path, form: Format | str, folder: Path) -> Exported:
    """Write the sweep's tables, or its records, into `folder`, each file whole or not at all.

    Raises ConfigError for an unknown format or a folder that holds other things, ExportError where it cannot be written; ResultsError,
    DamagedFile where the sweep cannot be read.
    """
    if form not in list(Format):
        raise ConfigError.one("--format", None, str(form), "is no format", f"one of {', '.join(Format)}")
    form, sweep = Format(form), load_sweep(sweep_dir)
    if form is Format.PYTORCH_HUD:
        files: dict[str, Callable[[Path], Any]] = {"benchmark_results.json": _text(hud_text(sweep, all_cells(sweep)))}
    elif form is Format.CSV:
        files = {f"{name}.csv": _csv(table) for name, table in tables_of(sweep).named().items()}
    else:
        tables = tables_of(sweep)
        files = {f"{name}.parquet": _parquet(table) for name, table in tables.named().items()}
        files |= {"README.md": _text(dataset_card(sweep, tables))} if form is Format.HF else {}
    _check_folder(folder, list(files))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, write in files.items():
            write(folder / name)
    except OSError as error:
        raise ExportError(f"{folder} cannot be written ({why_not_written(folder, error)}); name another with --out") from None
    return Exported([folder / name for name in files], sweep.problems)


def _check_folder(folder: Path, names: Sequence[str]) -> None:
    """An earlier export of the same form is replaced; anything else that is there stays, and is an error."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError.one("--out", None, str(folder), "is a file", "name a folder")
    others = sorted({path.name for path in folder.iterdir()} - {*names}) if folder.is_dir() else []
    if others:
        raise ConfigError.one("--out", None, str(folder), f"holds other things ({others[0]})", "name an empty folder, or one to be made")


def _text(text: str) -> Callable[[Path], Any]:
    return lambda path: atomic_write(path, text)


def _csv(table: Any) -> Callable[[Path], Any]:
    """RFC 4180, UTF-8, a header; null is empty, also beside whole numbers, which stay whole. pandas writes floats so that reading gives the
    same ones."""
    return lambda path: atomic_file(path, lambda temporary: table.to_pandas(integer_object_nulls=True).to_csv(temporary, index=False))


def _parquet(table: Any) -> Callable[[Path], Any]:
    return lambda path: atomic_file(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))
