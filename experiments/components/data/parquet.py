"""Rows of two columns in local Parquet files, such as images and captions: an index over row groups, an endless seeded order of batches."""

from __future__ import annotations

import os
import random
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.components.workload import DataError
from experiments.datasets.columns import WANTED, Holds, holds

WINDOW_BYTES = 256 * 2**20  # rows are shuffled within row groups of about this size, so that one process never holds more


class CorruptRow(Exception):
    """This row cannot be used; the message says why."""


@dataclass(frozen=True)
class RowGroup:
    """One row group of one file; `first` is its first row's number in the whole split."""

    path: Path
    group: int
    first: int
    rows: int
    size: int  # bytes


def split_files(folder: Path, split: str) -> list[Path]:
    """The split's files: SPLIT.parquet or SPLIT-*.parquet. Raises DataError if there are none."""
    files = sorted(path for path in folder.glob("*.parquet") if path.stem == split or path.stem.startswith(f"{split}-"))
    if not files:
        raise DataError(f"{folder} has no {split}.parquet and no {split}-*.parquet")
    return files


def read_index(files: list[Path], columns: tuple[str, str], kinds: tuple[Holds, Holds] = ("text", "text")) -> list[RowGroup]:
    """Every row group of the files. Raises DataError naming a file that is not whole Parquet, lacks a column or has another type in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups: list[RowGroup] = []
    first = 0
    for path in files:
        try:
            metadata = pq.read_metadata(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{path} is not a whole Parquet file (cut off, or still being written?): {error}") from error
        schema = metadata.schema.to_arrow_schema()
        for column, kind in zip(columns, kinds, strict=True):
            if column not in schema.names:
                raise DataError(f"{path} has no column {column!r}; it has {', '.join(schema.names)}")
            if not holds(schema.field(column).type, kind):
                raise DataError(f"{path}: column {column!r} holds {schema.field(column).type}, wanted {WANTED[kind]}")
        for group in range(metadata.num_row_groups):
            part = metadata.row_group(group)
            groups.append(RowGroup(path, group, first, part.num_rows, part.total_byte_size))
            first += part.num_rows
    if first == 0:
        raise DataError(f"{', '.join(map(str, files))}: no rows")
    return groups


class Rows:
    """Random access by row number to two columns, as image bytes and caption. Keeps the row groups read last, up to twice WINDOW_BYTES.

    Threads may share it. Then one of them reads a row group from its file, and the others wait for it.
    """

    def __init__(self, groups: list[RowGroup], image_column: str, caption_column: str) -> None:
        self.groups, self.columns = groups, (image_column, caption_column)
        self._starts = [group.first for group in groups]
        self._cache: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
        self._held = 0
        self._files: dict[Path, Any] = {}
        self._pid = os.getpid()
        self._lock = threading.Lock()  # of the cache and the files

    def __len__(self) -> int:
        return self.groups[-1].first + self.groups[-1].rows

    def name(self, row: int) -> str:
        """File name and row number within the file, for messages."""
        group = self.groups[self._find(row)]
        first = next(other.first for other in self.groups if other.path == group.path)
        return f"{group.path.name} row {row - first}"

    def read(self, row: int) -> tuple[bytes | None, str | None]:
        """The encoded image and the caption, of several the first; None where the file has none.

        Raises DataError for a broken row group, CorruptRow for text that is not UTF-8.
        """
        index = self._find(row)
        with self._lock:
            images, captions = self._group(index)
        offset = row - self.groups[index].first
        try:
            image, caption = images[offset].as_py(), captions[offset].as_py()
        except UnicodeDecodeError as error:
            raise CorruptRow(f"column {self.columns[1]!r} is not UTF-8 text ({error.reason} at byte {error.start})") from None
        return image, next(iter(caption), None) if isinstance(caption, list) else caption

    def _find(self, row: int) -> int:
        from bisect import bisect_right

        return bisect_right(self._starts, row) - 1

    def _group(self, index: int) -> tuple[Any, Any]:
        if index in self._cache:
            self._cache.move_to_end(index)
            return self._cache[index]
        if self._pid != os.getpid():  # a DataLoader process must not share file positions with its parent
            self._files, self._pid = {}, os.getpid()
        group = self.groups[index]
        loaded = self._load(group)
        while self._cache and self._held + group.size > 2 * WINDOW_BYTES:
            old, _ = self._cache.popitem(last=False)
            self._held -= self.groups[old].size
        self._cache[index] = loaded
        self._held += group.size
        return loaded

    def _load(self, group: RowGroup) -> tuple[Any, Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        image_column, caption_column = self.columns
        try:
            if group.path not in self._files:
                self._files[group.path] = pq.ParquetFile(group.path, memory_map=True)
            table = self._files[group.path].read_row_group(group.group, columns=list(dict.fromkeys(self.columns)), use_threads=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{group.path}, row group {group.group}: {error}") from error
        images = table.column(image_column).combine_chunks()
        if pa.types.is_struct(images.type):  # the Hugging Face layout: struct{bytes, path}
            images = images.field("bytes")
        return images, table.column(caption_column).combine_chunks()


@dataclass(frozen=True)
class BatchIndices:
    """One batch to load: the rows, rows that may stand in for corrupt ones, and the seed of its augmentation."""

    rows: tuple[int, ...]
    spare: tuple[int, ...]
    seed: int


def batch_indices(groups: list[RowGroup], *, batch: int, rank: int, world: int, seed: int) -> Iterator[BatchIndices]:
    """This rank's batches of `batch` rows, without end.

    In each epoch the `world` ranks together visit every row once. The order of the rows depends on the seed alone.
    """
    stream = _row_stream(groups, seed)
    spares = _row_stream(groups, seed + 1)
    number = 0
    while True:
        whole = [next(stream) for _ in range(batch * world)]
        spare = [next(spares) for _ in range(4 * world)]
        mine = tuple(whole[rank * batch : (rank + 1) * batch])
        yield BatchIndices(mine, tuple(row for row in spare[rank * 4 : rank * 4 + 4] if row not in mine), hash((seed, number, rank)))
        number += 1


def _row_stream(groups: list[RowGroup], seed: int) -> Iterator[int]:
    """Row numbers, epoch after epoch: row groups shuffled, then rows within windows of row groups."""
    epoch = 0
    while True:
        draw = random.Random(f"{seed}/{epoch}")
        order = list(groups)
        draw.shuffle(order)
        window: list[int] = []
        held = 0
        for position, group in enumerate(order):
            window.extend(range(group.first, group.first + group.rows))
            held += group.size
            if held >= WINDOW_BYTES or position == len(order) - 1:
                draw.shuffle(window)
                yield from window
                window, held = [], 0
        epoch += 1
