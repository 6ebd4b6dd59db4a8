"""Remote Parquet is copied to this machine's disk before a trial starts, so that no network is inside the measured window.

Each version of a data set has a folder of its own, named by the fingerprint in the trial's key; files that did not change are shared.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from experiments.components.data.listing import fingerprint
from experiments.components.workload import DataError

REMOTE = ("s3://", "gs://", "hf://")


def cache_root() -> Path:
    """Where this node keeps what trials use again: SWEEPBENCH_CACHE, else ~/.cache/sweepbench."""
    return Path(os.environ.get("SWEEPBENCH_CACHE") or Path.home() / ".cache" / "sweepbench")


def cache_folder() -> Path:
    """Where copies of data sets live."""
    return cache_root() / "datasets"


def local_folder(uri: str, splits: tuple[str, ...], version: str) -> Path:
    """A local folder with the splits' Parquet files: `uri` itself, or a copy of what is remote. `version`: its fingerprint in the plan.

    Raises DataError for a folder that does not exist or cannot be read, and for remote files that are no longer those of the plan.
    """
    if not uri.startswith(REMOTE):
        folder = Path(uri.removeprefix("file://")).expanduser()
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder")
        return folder
    files, path = _filesystem(uri)
    pinned = uri.startswith("hf://")  # to a commit, which nobody can change
    if not pinned:
        _check_version(uri, files, path, version)
    folder = copy(files, path, splits, cache_folder() / hashlib.sha256(uri.encode()).hexdigest()[:16] / version)
    if not pinned:
        _check_version(uri, files, path, version)  # it may have changed while it was copied
    return folder


def _check_version(uri: str, files: Any, path: str, version: str) -> None:
    try:
        now = fingerprint(files, path)
    except OSError as error:
        raise DataError(f"{uri} cannot be listed: {error}") from error
    if now != version:
        raise DataError(
            f"{uri} has changed since the sweep was planned ({version} -> {now}): `sweep resume` runs its trials with what is there"
        )


def copy(files: Any, path: str, splits: tuple[str, ...], folder: Path) -> Path:
    """Copy the splits' Parquet files under `path` of a pyarrow filesystem into `folder`, and return it. Raises DataError.

    A file that is there, of the same size and modification time, is not copied again; one of another version of the data set, in a folder
    beside this one, is linked. Several ranks may call this at once.
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
            if _is_copy(target, item) or _linked(target, item):
                continue
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            try:
                with files.open_input_stream(item.path) as source, open(temporary, "wb") as out:
                    shutil.copyfileobj(source, out, 16 * 2**20)
                    out.flush()
                    os.fsync(out.fileno())
                if item.mtime_ns is not None:
                    os.utime(temporary, ns=(item.mtime_ns, item.mtime_ns))
                temporary.replace(target)
            except OSError as error:
                raise DataError(f"{item.path} cannot be copied: {error}") from error
            finally:
                temporary.unlink(missing_ok=True)
    return folder


def _is_copy(path: Path, item: Any) -> bool:
    """Whether `path` is a whole copy of this version of a remote file."""
    if not path.is_file():
        return False
    found = path.stat()
    return found.st_size == item.size and item.mtime_ns in (None, found.st_mtime_ns)


def _linked(target: Path, item: Any) -> bool:
    """Make `target` a link to a copy of the same file in another version's folder. False where there is none."""
    same = next((path for path in target.parent.parent.glob(f"*/{target.name}") if path != target and _is_copy(path, item)), None)
    if same is None or item.mtime_ns is None:
        return False
    target.unlink(missing_ok=True)
    target.hardlink_to(same)
    return True


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
