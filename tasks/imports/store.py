"""Imports on disk: runs/<id>/imported.json, and the files that were read beside it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cluster.trial_layout import IMPORTED, ORIGINALS
from experiments.atomic_file import atomic_file, atomic_write
from experiments.config.errors import ConfigError, DamagedFile
from experiments.config.paths import runs_root
from experiments.json_file import read_model, sealed_text
from tasks.imports.model import Imported, Original, Read
from tasks.imports.read import read_file, together
from tasks.sweep.store import StoreError, SweepStore, is_sweep_id, new_sweep_id, started_order

_AGAIN = "remove the folder, and import the files again"


def import_files(paths: Sequence[Path]) -> Imported:
    """Read the files, keep copies of them, and write what they hold; nothing is written unless all can be read.

    Raises ConfigError for a file that cannot be read, is of no known kind or was imported before, StoreError where nothing can be written.
    """
    contents = [_bytes(path) for path in paths]
    hashes = [hashlib.sha256(data).hexdigest() for data in contents]
    _check_new(paths, hashes)
    names = _names(paths)
    reads = [_of(read_file(path, data), name) for path, data, name in zip(paths, contents, names, strict=True)]
    originals = [
        Original(name=name, read_from=str(path.absolute()), sha256=sha256, size=len(data))
        for name, path, sha256, data in zip(names, paths, hashes, contents, strict=True)
    ]
    imported = _imported(together(paths, reads), originals)
    folder = SweepStore(imported.sweep_id).dir
    try:
        (folder / ORIGINALS).mkdir(parents=True)
        for original, data in zip(originals, contents, strict=True):
            atomic_file(folder / ORIGINALS / original.name, lambda temporary, data=data: temporary.write_bytes(data))  # type: ignore[misc]
        atomic_write(folder / IMPORTED, sealed_text(imported))
    except OSError as error:
        raise StoreError(f"{folder} cannot be written ({error.strerror}); set SWEEPBENCH_RUNS to a folder that can be") from None
    return imported


def find_imported(sweep_id: str) -> Imported | None:
    """What was imported under this id; None where nothing was. Raises StoreError for an id that is none, DamagedFile, also for an original
    that is not as it was."""
    found, folder = read_imported(sweep_id), SweepStore(sweep_id).dir
    for original in found.originals if found else ():
        path = folder / ORIGINALS / original.name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != original.sha256:
            raise DamagedFile(path, "", "is not as it was imported", _AGAIN)
    return found


def read_imported(sweep_id: str) -> Imported | None:
    """As `find_imported`, without looking at the originals."""
    return read_model(SweepStore(sweep_id).dir / IMPORTED, Imported, _AGAIN)


def list_imported() -> list[str]:
    """Ids of all imports, newest first."""
    names = [path.parent.name for path in runs_root().glob(f"*/{IMPORTED}")]
    return sorted(filter(is_sweep_id, names), key=started_order, reverse=True)


def _imported(read: Read, originals: Sequence[Original]) -> Imported:
    return Imported(
        sweep_id=new_sweep_id(read.origin.value),
        origin=read.origin,
        versions=read.version.split("; ") if read.version else [],
        imported_at=time.time(),
        measured_at=read.measured_at,
        environment=read.environment,
        originals=list(originals),
        results=read.results,
    )


def _of(read: Read, name: str) -> Read:
    """What was read, of the original of this name."""
    return replace(read, results=[result.model_copy(update={"file": name}) for result in read.results])


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError.one(path, None, "", f"cannot be read ({error.strerror})", "name a file") from None


def _names(paths: Sequence[Path]) -> list[str]:
    """The files' own names; where two are the same, with their place before it."""
    names = [path.name for path in paths]
    return names if len({*names}) == len(names) else [f"{number}-{name}" for number, name in enumerate(names, 1)]


def _check_new(paths: Sequence[Path], hashes: Sequence[str]) -> None:
    """Raise ConfigError for a file that is given twice, or whose content was imported before."""
    known = {sha256: f"was imported as {sweep_id}" for sweep_id in list_imported() for sha256 in _hashes(sweep_id)}
    for path, sha256 in zip(paths, hashes, strict=True):
        if sha256 in known:
            raise ConfigError.one(path, None, "", f"the same content {known[sha256]}", "leave it out; `sweep list` shows what is there")
        known[sha256] = f"is that of {path}"


def _hashes(sweep_id: str) -> list[str]:
    try:
        found = read_imported(sweep_id)
    except DamagedFile:
        return []
    return [original.sha256 for original in found.originals] if found else []
