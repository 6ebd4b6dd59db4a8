"""Which records of trials were read in full and found whole: by a checksum of their files, so that the next reader need not parse them.

.whole.json in a sweep's folder has, for each trial that has ended, the SHA-256 of the bytes of its record. A record with the same bytes is
whole still: that takes a tenth of parsing and validating it. One with other bytes is read in full, which says what is wrong with it and
where. The file has a seal. It can be removed at any time; one that is damaged, or of other code, counts as none.
"""

from __future__ import annotations

import hashlib
import os
import threading
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path

from cluster.source_tree import hash_of
from cluster.trial_layout import DEVICE_STATE, JOURNAL, LAUNCH, RESULT, STEPS, TRIAL, WHOLE
from experiments.config.paths import REPOSITORY, extra_folders
from experiments.trial import digest
from tasks.sweep.kept_file import read_kept, write_kept

_FILES = (TRIAL, LAUNCH, RESULT, DEVICE_STATE)
_PACKAGES = ("cluster", "experiments", "tasks")
_LIBRARIES = ("numpy", "scipy")  # another version may give other last digits


def record_digest(folder: Path) -> str | None:
    """64 hex digits of the files of a trial's record; None without a result, or where a file cannot be read.

    steps.parquet counts only where there is no journal that it could be made from again.
    """
    content = hashlib.sha256()
    for name in (*_FILES, JOURNAL, STEPS):
        try:
            data = _read(f"{folder}/{name}")
        except FileNotFoundError:
            if name == RESULT or (folder / name).is_symlink():
                return None
            if name != JOURNAL:
                content.update(f"{name}: none\n".encode())
        except OSError:
            return None
        else:
            content.update(f"{name}: {len(data)}\n".encode())
            content.update(data)
            if name == JOURNAL:
                break
    return content.hexdigest()


class _Buffer(threading.local):
    """Of each thread: of thousands of small files half the time would go by with new memory and questions for their sizes."""

    def __init__(self) -> None:
        self.memory = bytearray(2**20)


_buffer = _Buffer()


def _read(path: str) -> memoryview | bytes:
    """A file's bytes, until the thread's next call."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.readv(file, [_buffer.memory])
        if size < len(_buffer.memory):
            return memoryview(_buffer.memory)[:size]
        parts = [bytes(_buffer.memory)]
        while parts[-1]:
            parts.append(os.read(file, 2**20))
        return b"".join(parts)
    finally:
        os.close(file)


@cache
def code_digest() -> str:
    """16 hex digits of the code that reads and derives, as this process first saw it, and of the libraries that compute.

    The user's workloads are part of it: they say what changes a cell's work.
    """
    folders = {part: REPOSITORY / part for part in _PACKAGES}
    folders |= {f"extra/{number}": folder / "workloads" for number, folder in enumerate(extra_folders())}
    files = {f"{name}/{path.relative_to(folder)}": path for name, folder in folders.items() for path in folder.rglob("*.py")}
    return digest([hash_of(files), *(version(name) for name in _LIBRARIES)])


class WholeRecords:
    """The whole records of one sweep. `save` writes what was added."""

    def __init__(self, sweep_dir: Path) -> None:
        self._path = sweep_dir / WHOLE
        self._digests: dict[str, str] = self._read()
        self._new = False

    def has(self, key: str, digest: str) -> bool:
        """Whether the trial's record was whole when its files had this digest."""
        return self._digests.get(key) == digest

    def add(self, key: str, digest: str) -> None:
        """The trial's record is whole, and its files have this digest."""
        self._digests[key] = digest
        self._new = True

    def save(self) -> None:
        """Write what was added. A folder that cannot be written keeps nothing: the next reader reads in full."""
        if self._new:
            self._new = False
            write_kept(self._path, {"code": code_digest(), "records": self._digests})

    def _read(self) -> dict[str, str]:
        kept = read_kept(self._path)
        if not kept or kept.get("code") != code_digest() or not isinstance(kept.get("records"), dict):
            return {}
        return {str(key): str(digest) for key, digest in kept["records"].items()}


@lru_cache(maxsize=16)
def whole_records(sweep_dir: Path) -> WholeRecords:
    """Those of the sweep in this folder, read once a process."""
    return WholeRecords(sweep_dir)
