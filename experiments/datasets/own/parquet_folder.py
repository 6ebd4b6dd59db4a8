"""A folder of Parquet files as tables. A file SPLIT.parquet or SPLIT-*.parquet is of the split SPLIT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.datasets.own.table import ROWS_AT_ONCE, UNNAMED, OwnDataError, Part, Table, is_split

if TYPE_CHECKING:
    import pyarrow as pa


def read(folder: Path, named: Sequence[str]) -> Table | None:
    """The Parquet files of `folder`, else of the one folder in it that has any; None without one. `named`: splits the user named.

    Where no file is of a usual split or of one that is named, all files are one part without a name. Raises OwnDataError.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        below = sorted({path.parent for path in folder.glob("*/*.parquet")})
        if len(below) > 1:
            names = ", ".join(path.name for path in below)
            raise OwnDataError(f"{folder} has Parquet files in several folders ({names}): give one of them")
        if not below:
            return None
        folder = below[0]
        files = sorted(folder.glob("*.parquet"))
    by_split: dict[str, list[Path]] = {}
    for path in files:
        by_split.setdefault(path.stem if path.stem in named else path.stem.split("-")[0], []).append(path)
    splits = {name: paths for name, paths in by_split.items() if is_split(name) or name in named}
    return Table("Parquet files", folder, {name: _part(paths) for name, paths in (splits or {UNNAMED: files}).items()})


def _part(files: Sequence[Path]) -> Part:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, schema = 0, None
    for path in files:
        try:
            metadata = pq.read_metadata(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise OwnDataError(f"{path} is not a whole Parquet file (cut off, or still being written?): {error}") from error
        found = metadata.schema.to_arrow_schema()
        if schema is not None and not schema.remove_metadata().equals(found.remove_metadata()):
            raise OwnDataError(f"{path} has other columns than {files[0].name}: {_columns(found)}, not {_columns(schema)}")
        rows, schema = rows + metadata.num_rows, schema or found
    return Part(rows, schema, lambda columns: _batches(files, columns), tuple(files))


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)


def _batches(files: Sequence[Path], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in files:
        try:
            with pq.ParquetFile(path, memory_map=True) as file:
                yield from file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(columns))
        except (pa.ArrowInvalid, OSError) as error:
            raise OwnDataError(f"{path}: {error}") from error
