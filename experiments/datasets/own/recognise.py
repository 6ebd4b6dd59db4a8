"""What a folder of the user's own is, and when it counts as changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.datasets.own import image_folder, parquet_folder, saved_folder
from experiments.datasets.own.table import OwnDataError, Table
from experiments.trial import digest

LAYOUTS = (
    "Parquet files (SPLIT.parquet or SPLIT-*.parquet), a folder that save_to_disk of datasets wrote, images with captions in metadata.csv, "
    "metadata.jsonl or a .txt beside each, or images in a folder for each class"
)
_DATA = frozenset({".parquet", ".arrow", ".json", ".jsonl", ".csv", ".txt", *image_folder.SUFFIXES})


def recognise(folder: Path, named: Sequence[str] = ()) -> Table:
    """The data set in `folder`. `named`: splits that the user named. Raises OwnDataError for anything that is none."""
    if not folder.exists():
        raise OwnDataError(f"{folder} does not exist; give a folder with {LAYOUTS}")
    if not folder.is_dir():
        raise OwnDataError(f"{folder} is a file: give the folder that it lies in")
    try:
        table = parquet_folder.read(folder, named) or saved_folder.read(folder) or image_folder.read(folder, named)
    except OSError as error:
        raise OwnDataError(f"{error.filename or folder} cannot be read: {error.strerror}") from error
    if table is None:
        raise OwnDataError(f"{folder} holds no data that is known here; known are {LAYOUTS}")
    return table


def version(folder: Path) -> str:
    """A fingerprint of the folder's data files: their names from it, sizes and modification times."""
    listed = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in _DATA and path.is_file():
            found = path.stat()
            listed.append([path.relative_to(folder).as_posix(), found.st_size, found.st_mtime_ns])
    return digest(listed)
