"""The folder in which torch.compile and Triton keep what a trial compiles, so that the next one need not compile it again.

Compiling takes longer than measuring. Inductor finds a graph by a hash of the graph, its own settings, the versions and the device, so a
graph that it finds is the one it would have made. A folder belongs to a pool and to what its trials run on, and is removed as a whole: a
single missing file would break an entry of Triton's.

Each trial holds a shared lock on its folder's lock file, which the kernel takes back however the trial dies, and leaves a mark beside it
until it ends. Inductor and Triton write their entries atomically, but g++ links where its library is to lie, so a trial that was killed
can leave half of one. A mark whose trial is gone therefore means: the folder is not to be trusted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from cluster.kept_files import kept_folder, make_private
from cluster.trial_layout import COMPILE_CACHE
from experiments.trial import digest

LIMIT_BYTES = 8 * 2**30  # of all folders of a pool; beyond it those that were used longest ago are removed
_VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "", "TRITON_CACHE_DIR": "triton"}  # name -> place in the folder
_ENVIRONMENT = ("python", "torch", "triton", "device_name", "cpu")
_FRESH, _LOCK, _MARK = "fresh-", ".lock", ".open-"


class Lookups(NamedTuple):
    """What one rank found in its cache: graphs that were there, graphs that it had to make, and whether the cache was empty before."""

    found: int
    missed: int
    empty: bool


def compilation(ranks: Sequence[Lookups]) -> str:
    """How a trial's graphs were made: `cold`, `cached`, `partly cached`; `unknown` where no rank counted any (another backend).

    In a cache that was empty all were made by this trial, also those that it found: it had made them for another layer or rank.
    """
    found, missed = sum(rank.found for rank in ranks), sum(rank.missed for rank in ranks)
    if not found and not missed:
        return "unknown"
    if missed and (not found or any(rank.empty for rank in ranks)):
        return "cold"
    return "partly cached" if missed else "cached"


class CompileCache:
    """One trial's choice of folder. At the context's end variables are as before, a fresh folder is removed, the rest in bounds."""

    def __init__(self, pool: str = "", *, fresh: bool = False) -> None:
        """`fresh`: an empty folder of the trial's own instead of the one that is kept."""
        self._pool, self._fresh = pool, fresh
        self._folder: Path | None = None
        self._was_empty, self._end = False, ExitStack()

    def use(self, facts: Mapping[str, Any]) -> str | None:
        """Let what is compiled from now on go into the folder for this environment (`facts`). Returns what kept it from that, if anything.

        Where nothing is kept and none is asked for, torch's own default stays.
        """
        try:
            root = kept_folder(f"{COMPILE_CACHE}/{self._pool}")
            if root is not None:
                make_private(root)
            if self._fresh:
                folder = Path(tempfile.mkdtemp(prefix=_FRESH, dir=root))
            elif root is None:
                return None
            else:
                folder = root / digest({name: facts.get(name) for name in _ENVIRONMENT})
            self._end.enter_context(_in_use(folder))
        except OSError as error:
            return f"compiled graphs are not kept: {error}"
        self._folder, self._was_empty = folder, not (folder / "fxgraph").exists()
        before = {name: os.environ.get(name) for name in _VARIABLES}
        self._end.callback(_set, before)
        _set({name: str(folder / place) for name, place in _VARIABLES.items()})
        return None

    def lookups(self) -> Lookups:
        """What this process has found in the cache so far, as inductor counts it."""
        from cluster.worker.torch_internals import graph_lookups

        return Lookups(*graph_lookups(), self._was_empty)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.close()
        if self._folder is None or not (self._fresh or self.lookups().missed):
            return
        with suppress(OSError):  # the disk may be what ended the trial
            if self._fresh:
                _remove(self._folder)
            tidy(self._folder.parent)


def tidy(root: Path, limit_bytes: int | None = None) -> None:
    """Remove what killed trials left of fresh folders, then the kept folders used longest ago until all take at most `limit_bytes`.

    Folders in use stay. Does nothing in a system's temporary folder. Raises OSError.
    """
    if root == Path(tempfile.gettempdir()):
        return  # others' files
    limit = LIMIT_BYTES if limit_bytes is None else limit_bytes
    folders = sorted((path for path in root.iterdir() if path.is_dir()), key=_last_used)
    sizes = {folder: _size(folder) for folder in folders}
    for folder in folders:
        abandoned = folder.name.startswith(_FRESH)
        if (abandoned or sum(sizes.values()) > limit) and _remove(folder):
            del sizes[folder]


@contextmanager
def _in_use(folder: Path) -> Iterator[None]:
    """Hold `folder` as one of its users. Emptied first if a killed trial may have left a file half written. Raises OSError."""
    if any(_marks(folder)):
        _remove(folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(_beside(folder, _LOCK), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        folder.mkdir(mode=0o700, exist_ok=True)  # another trial may have removed it before it was held
        mark = _beside(folder, f"{_MARK}{socket.gethostname()}-{os.getpid()}")
        mark.touch()
        os.utime(_beside(folder, _LOCK))
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)


def _remove(folder: Path) -> bool:
    """Remove a folder and the marks of its trials, unless one is using it. Returns whether it is gone. Raises OSError."""
    with open(_beside(folder, _LOCK), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        shutil.rmtree(folder, ignore_errors=True)
        for mark in _marks(folder):
            mark.unlink(missing_ok=True)
        if folder.name.startswith(_FRESH):
            _beside(folder, _LOCK).unlink(missing_ok=True)
        return not folder.exists()


def _beside(folder: Path, ending: str) -> Path:
    return folder.with_name(folder.name + ending)


def _marks(folder: Path) -> list[Path]:
    return list(folder.parent.glob(f"{folder.name}{_MARK}*"))


def _last_used(folder: Path) -> float:
    lock = _beside(folder, _LOCK)
    return lock.stat().st_mtime if lock.exists() else 0.0


def _size(folder: Path) -> int:
    """Bytes of the files in a folder; what vanishes meanwhile is not counted."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(path) / name).stat().st_size
    return total


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
