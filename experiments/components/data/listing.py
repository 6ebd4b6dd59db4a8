"""Which version of a data set of Parquet files is there: a fingerprint of their names, sizes and modification times."""

from __future__ import annotations

from typing import Any

from experiments.trial import digest


def fingerprint(files: Any, path: str) -> str | None:
    """Fingerprint of the Parquet files at or below `path` of a pyarrow filesystem; None where there is none. Raises OSError.

    A modification time that a store does not tell counts as 0.
    """
    from pyarrow import fs

    at = files.get_file_info(path)
    if at.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"{path} does not exist")
    listed = files.get_file_info(fs.FileSelector(path, recursive=True) if at.type == fs.FileType.Directory else [path])
    parquet = sorted(
        (info.path, info.size, info.mtime_ns or 0) for info in listed if info.type == fs.FileType.File and info.path.endswith(".parquet")
    )
    return digest([list(entry) for entry in parquet]) if parquet else None
