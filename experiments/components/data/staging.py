"""Remote Parquet is copied to this machine's disk before a trial starts, so that no network is inside the measured window."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from experiments.components.workload import DataError

REMOTE = ("s3://", "gs://", "hf://")


def cache_root() -> Path:
    """Where this node keeps what trials use again: SWEEPBENCH_CACHE, else ~/.cache/sweepbench."""
    return Path(os.environ.get("SWEEPBENCH_CACHE") or Path.home() / ".cache" / "sweepbench")


def cache_folder() -> Path:
    """Where copies of data sets live."""
    return cache_root() / "datasets"


def local_folder(uri: str, splits: tuple[str, ...]) -> Path:
    """A local folder with the splits' Parquet files: `uri` itself, or a copy of what is remote.

    Raises DataError for a folder that does not exist or cannot be read.
    """
    if not uri.startswith(REMOTE):
        folder = Path(uri.removeprefix("file://")).expanduser()
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder")
        return folder
    files, path = _filesystem(uri)
    return copy(files, path, splits, cache_folder() / hashlib.sha256(uri.encode()).hexdigest()[:16])


def copy(files: Any, path: str, splits: tuple[str, ...], folder: Path) -> Path:
    """Copy the splits' Parquet files under `path` of a pyarrow filesystem into `folder`, and return it. Raises DataError.

    A file that is there in full is not copied again. Several ranks may call this at once.
    """
    from filelock import FileLock
    from pyarrow import fs

    folder.mkdir(parents=True, exist_ok=True)
    try:
        listed = files.get_file_info(fs.FileSelector(path))
    except OSError as error:
        raise DataError(f"{path} cannot be listed: {error}") from error
    parquet_files = [
        item for item in listed if item.base_name.endswith(".parquet") and item.base_name.removesuffix(".parquet").split("-")[0] in splits
    ]
    with FileLock(folder / ".lock"):
        for item in parquet_files:
            target = folder / item.base_name
            if target.is_file() and target.stat().st_size == item.size:
                continue
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            try:
                with files.open_input_stream(item.path) as source, open(temporary, "wb") as out:
                    shutil.copyfileobj(source, out, 16 * 2**20)
                    out.flush()
                    os.fsync(out.fileno())
                temporary.replace(target)
            except OSError as error:
                raise DataError(f"{item.path} cannot be copied: {error}") from error
            finally:
                temporary.unlink(missing_ok=True)
    return folder


def _filesystem(uri: str) -> tuple[Any, str]:
    from pyarrow import fs

    try:
        if uri.startswith("hf://"):
            from huggingface_hub import HfFileSystem

            return fs.PyFileSystem(fs.FSSpecHandler(HfFileSystem())), uri.removeprefix("hf://")
        files, path = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"{uri}: {error}") from error
    return files, path
