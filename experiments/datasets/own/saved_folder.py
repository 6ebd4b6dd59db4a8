"""A folder that `save_to_disk` of Hugging Face's library datasets wrote, as tables, without that library.

A DatasetDict has dataset_dict.json, which names its splits, each a folder. A Dataset is a folder with state.json, which names its files:
Arrow's stream format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.datasets.own.table import UNNAMED, OwnDataError, Part, Table, inside, sliced

if TYPE_CHECKING:
    import pyarrow as pa

MOST_JSON_BYTES = 16 * 2**20
DICT, STATE = "dataset_dict.json", "state.json"


def read(folder: Path) -> Table | None:
    """The data set in `folder`; None where save_to_disk wrote none there. Raises OwnDataError."""
    what = "a data set of Hugging Face's save_to_disk"
    if (folder / DICT).is_file():
        names = _json(folder / DICT).get("splits")
        if not isinstance(names, list) or not names:
            raise OwnDataError(f"{folder / DICT} names no splits")
        return Table(what, folder, {str(name): _part(inside(folder, f"{name}/{STATE}").parent) for name in names})
    return Table(what, folder, {UNNAMED: _part(folder)}) if (folder / STATE).is_file() else None


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_JSON_BYTES:
            raise OwnDataError(f"{path} is larger than {MOST_JSON_BYTES} bytes: no library wrote that")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OwnDataError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise OwnDataError(f"{path} is not what save_to_disk writes")
    return found


def _part(folder: Path) -> Part:
    state = _json(folder / STATE)
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise OwnDataError(f"{folder} selects its rows by an index file of an old version of datasets: save it again with a newer one")
    listed = state.get("_data_files")
    try:
        files = [inside(folder, entry["filename"]) for entry in listed or []]
    except (TypeError, KeyError):
        raise OwnDataError(f"{folder / STATE}: _data_files is not what save_to_disk writes") from None
    if not files:
        raise OwnDataError(f"{folder / STATE} names no data files")
    rows, schema = 0, None
    for path in files:
        with _stream(path) as reader:
            schema = schema or reader.schema
            rows += sum(len(batch) for batch in _whole(path, reader))
    return Part(rows, schema, lambda columns: _batches(files, columns))


def _stream(path: Path) -> Any:
    """A reader of the file's record batches, which are not copied into memory. Raises OwnDataError."""
    import pyarrow as pa

    try:
        return pa.ipc.open_stream(pa.memory_map(str(path)))
    except (pa.ArrowInvalid, OSError) as error:
        raise OwnDataError(f"{path} is not an Arrow stream file: {error}") from error


def _whole(path: Path, reader: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    try:
        yield from reader
    except (pa.ArrowInvalid, OSError) as error:
        raise OwnDataError(f"{path} is cut off or damaged: {error}") from error


def _batches(files: Sequence[Path], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for path in files:
        with _stream(path) as reader:
            for batch in _whole(path, reader):
                chosen = batch.select(list(columns))
                try:
                    chosen.validate(full=True)  # Arrow trusts a stream's offsets, which in a damaged file may point anywhere
                except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                    raise OwnDataError(f"{path} is damaged: {error}") from error
                yield from sliced(chosen)
