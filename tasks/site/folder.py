"""The folder of a site: each file whole or not at all, only what changed, and nothing left of an earlier site."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from experiments.config.error_text import why_not_written
from experiments.config.errors import ConfigError, UserError

RECORD = "site.json"  # says that the folder is a site, and which files are its own
_LOCK = ".site.lock"


class SiteError(UserError):
    """The site cannot be written. The message names the folder."""


class SiteFolder:
    """Files are not forced to the disk: a site can be made again at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: set[str] = set()

    def write(self, name: str, text: str) -> None:
        """Write a page; one that is the same already is left alone, with its time. Raises OSError."""
        path, data = self._path(name), text.encode()
        if not path.is_file() or path.read_bytes() != data:
            self._put(path, lambda temporary: temporary.write_bytes(data))

    def copy(self, source: Path, name: str) -> None:
        """Copy a file, unless the copy is as large and as new. Raises OSError."""
        path, wanted = self._path(name), source.stat()
        if path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) == (wanted.st_size, wanted.st_mtime_ns):
            return
        self._put(path, lambda temporary: shutil.copy2(source, temporary))

    def finish(self) -> int:
        """Remove what an earlier site had and this one has not, and record the files. Returns how many there are. Raises OSError."""
        for name in recorded(self._folder) or []:
            path = self._folder / name
            if name not in self._files and path.resolve().is_relative_to(self._folder.resolve()):
                path.unlink(missing_ok=True)
        record = {"what": "a site of sweepbench: `sweep site` replaces these files", "files": sorted(self._files)}
        self._put(self._folder / RECORD, lambda temporary: temporary.write_text(json.dumps(record, indent=1) + "\n"))
        return len(self._files)

    def _path(self, name: str) -> Path:
        self._files.add(name)
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @staticmethod
    def _put(path: Path, write: Callable[[Path], object]) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            write(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def site_folder(folder: Path) -> Iterator[SiteFolder]:
    """The folder, made or that of an earlier site, for one process at a time.

    Raises ConfigError where it holds anything else, SiteError where it cannot be written or another process writes it.
    """
    check_folder(folder)
    lock = FileLock(folder / _LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise SiteError(f"{folder}: another `sweep site` writes there; wait for it, or name another folder with --out") from None
    except OSError as error:
        raise SiteError(f"{folder} cannot be written ({why_not_written(folder, error)}); name another with --out") from error
    try:
        yield SiteFolder(folder)
    finally:
        lock.release()


def check_folder(folder: Path) -> None:
    """Raises ConfigError unless the folder is to be made, empty, or an earlier site."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError.one("--out", None, str(folder), "is a file", "name a folder")
    if not folder.is_dir() or recorded(folder) is not None:
        return
    others = sorted({path.name for path in folder.iterdir()} - {_LOCK})
    if others:
        raise ConfigError.one("--out", None, str(folder), f"holds other things ({others[0]})", "name an empty folder, or one to be made")


def recorded(folder: Path) -> list[str] | None:
    """The files of the site in a folder; None where there is none."""
    try:
        files = json.loads((folder / RECORD).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return [name for name in files if isinstance(name, str)] if isinstance(files, list) else None
