"""What files import, kept in the folder of results: parsing the hundred files of a trial's code takes a tenth of a second, each time.

An entry is named for the content of its file and the package that relative imports start from, so it never goes stale. The whole is of this
code and this Python: another one begins anew.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from tasks.sweep.kept_file import read_kept, write_kept

Names = tuple[tuple[str, ...], tuple[str, ...]]  # imported when the file is loaded, and by its functions

MOST = 5000  # entries; with more, those that this process did not need go


class KeptImports:
    """The entries of one folder of results; `save` writes what was added."""

    def __init__(self, runs: Path) -> None:
        self._path = runs / ".code" / "imports.json"
        self._kept = self._read()
        self._used: dict[str, list[list[str]]] = {}
        self._new = False

    def find(self, source: bytes, package: str) -> Names | None:
        """What a file of this content imports; None where that is not kept."""
        name = _name(source, package)
        if (names := self._kept.get(name)) is None:
            return None
        self._used[name] = names
        return tuple(names[0]), tuple(names[1])

    def add(self, source: bytes, package: str, names: Names) -> None:
        self._used[_name(source, package)] = [list(names[0]), list(names[1])]
        self._new = True

    def save(self) -> None:
        """Nothing is kept where there are no results yet, or nobody can write."""
        if self._new and self._path.parent.parent.is_dir():
            self._new = False
            kept = {**self._kept, **self._used}
            with suppress(OSError):
                self._path.parent.mkdir(exist_ok=True)
            write_kept(self._path, {"code": _code(), "imports": kept if len(kept) <= MOST else self._used})

    def _read(self) -> dict[str, list[list[str]]]:
        kept = read_kept(self._path)
        return dict(kept["imports"]) if kept.get("code") == _code() else {}


@lru_cache(maxsize=4)
def kept_imports(runs: Path) -> KeptImports:
    """Those below `runs`, read once a process."""
    return KeptImports(runs)


def _name(source: bytes, package: str) -> str:
    return hashlib.sha256(package.encode() + b"\0" + source).hexdigest()[:32]


@cache
def _code() -> str:
    parser = Path(__file__).with_name("import_closure.py")
    return hashlib.sha256(sys.version.encode() + parser.read_bytes()).hexdigest()[:16]
