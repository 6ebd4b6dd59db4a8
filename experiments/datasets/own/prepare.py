"""Make the set that trials read of a data set of the user's own: Parquet, a tokenizer, and made.json, which says how.

Rows, order and bytes of images stay as they are. Which rows are held out is a function of their number alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from experiments.datasets.own.findings import Recipe
from experiments.datasets.own.table import OwnDataError, Table
from experiments.datasets.parquet_writer import write_tokenizer
from experiments.trial import digest

FORMAT = 1  # raise it when the same recipe no longer gives the same set: it is part of the fingerprint
CUT_SEED = 0
MOST_TEXTS = 100_000  # that a tokenizer is trained on
MADE = "made.json"


def fingerprint(version: str, recipe: Recipe) -> str:
    """16 hex digits of the user's files (`version`: see recognise.version) and of what is made of them."""
    return digest([FORMAT, CUT_SEED, version, dataclasses.asdict(recipe)])


def held_out(rows: int, count: int) -> frozenset[int]:
    """The numbers of the `count` rows, of `rows`, that are cut off for evaluation: drawn at random, always the same."""
    return frozenset(random.Random(f"held out/{CUT_SEED}").sample(range(rows), count))


def prepare(directory: Path, table: Table, recipe: Recipe, splits: tuple[str, str]) -> None:
    """Write the set to `directory`, which appears in one step. `splits`: the names that training and held-out rows get.

    Raises OwnDataError, and OSError where there is no room.
    """
    folder = directory.with_name(f".{directory.name}.{os.getpid()}.tmp")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        if recipe.linked:
            assert recipe.validation is not None
            for name in dict.fromkeys((recipe.train, recipe.validation)):
                for path in table.parts[name].files:
                    _link(path, folder / path.name)
        else:
            _write(folder, table, recipe, splits)
        _tokenizer(folder, table, recipe)
        how = {"of": str(table.folder), **dataclasses.asdict(recipe), "cut_seed": CUT_SEED}
        made = {"says": says(table, recipe), **how}
        (folder / MADE).write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        folder.replace(directory)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def says(table: Table, recipe: Recipe) -> str:
    """What was made, in a sentence, for a trial's record."""
    parts = [f"made of {table.what}"]
    if recipe.cut:
        rows = table.parts[recipe.train].rows
        parts.append(f"{recipe.cut} of {rows} rows were cut off for evaluation, drawn with seed {CUT_SEED}")
    if recipe.tokenizer:
        parts.append(f"a tokenizer of at most {recipe.tokenizer.vocabulary} tokens was trained on its text")
    if recipe.classes:
        parts.append(f"{len(recipe.classes)} classes were numbered in the order of their names")
    return "; ".join(parts)


def _link(source: Path, target: Path) -> None:
    """The same file under another name; on another file system a symbolic link."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        target.symlink_to(source.resolve())


def _write(folder: Path, table: Table, recipe: Recipe, splits: tuple[str, str]) -> None:
    cut = held_out(table.parts[recipe.train].rows, recipe.cut)
    _write_parts(table, recipe, recipe.train, {folder / f"{splits[0]}.parquet": None, folder / f"{splits[1]}.parquet": cut})
    if recipe.validation is not None:
        _write_parts(table, recipe, recipe.validation, {folder / f"{splits[1]}.parquet": None})


def _write_parts(table: Table, recipe: Recipe, split: str, targets: dict[Path, frozenset[int] | None]) -> None:
    """Write the rows of one split; a target with row numbers gets these, the one without the rest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = table.parts[split]
    schema = pa.schema([pa.field(name, pa.int64() if _numbered(recipe, name) else part.schema.field(name).type) for name in recipe.columns])
    apart = frozenset[int]().union(*(rows for rows in targets.values() if rows is not None))
    with ExitStack() as stack:
        used = {path: rows for path, rows in targets.items() if rows is None or rows}
        writers = {path: stack.enter_context(pq.ParquetWriter(path, schema, compression="none")) for path in used}
        first = 0
        for batch in part.batches(recipe.columns):
            arrays = [_column(batch, name, recipe) for name in recipe.columns]
            rows = pa.Table.from_arrays(arrays, schema=schema)
            for path, wanted in used.items():
                at = [row for row in range(len(batch)) if (first + row in wanted if wanted is not None else first + row not in apart)]
                if at:
                    writers[path].write_table(rows.take(at))
            first += len(batch)
    if first != part.rows:
        raise OwnDataError(f"{table.folder}: {first} rows of the split {split or 'that has no name'} could be read, not {part.rows}")


def _numbered(recipe: Recipe, column: str) -> bool:
    return bool(recipe.classes) and column == recipe.label


def _column(batch: Any, name: str, recipe: Recipe) -> Any:
    import pyarrow as pa

    values = batch.column(name)
    if not _numbered(recipe, name):
        return values
    numbers = {label: number for number, label in enumerate(recipe.classes)}
    return pa.array([numbers[value] for value in values.to_pylist()], pa.int64())


def _tokenizer(folder: Path, table: Table, recipe: Recipe) -> None:
    if recipe.tokenizer_file is not None:
        (folder / "tokenizer").mkdir()
        shutil.copyfile(recipe.tokenizer_file, folder / "tokenizer" / "tokenizer.json")
    elif recipe.tokenizer is not None:
        texts = islice(_texts(table, recipe), MOST_TEXTS)
        wanted = recipe.tokenizer
        write_tokenizer(folder, texts, vocabulary=wanted.vocabulary, special=wanted.special, template=wanted.template)


def _texts(table: Table, recipe: Recipe) -> Iterator[str]:
    """The texts of the training rows; of a row with several, the first, which trials read too."""
    cut, first = held_out(table.parts[recipe.train].rows, recipe.cut), 0
    for batch in table.parts[recipe.train].batches(recipe.texts):
        columns: Sequence[Any] = [column.to_pylist() for column in batch.columns]
        for row in range(len(batch)):
            if first + row not in cut:
                for column in columns:
                    text = next(iter(column[row]), None) if isinstance(column[row], list) else column[row]
                    if text:
                        yield text
        first += len(batch)
