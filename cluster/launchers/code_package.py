"""The code that is sent to a Ray cluster: what a trial's process imports and the user's workloads, without runs/, .venv or .git.

Ray identifies the folder by the hash of its content, sends it once and unpacks it on the nodes as the jobs' working directory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cluster.git_state import as_environment, git_state
from cluster.source_tree import hash_of, source_files
from experiments.config.paths import EXTRA, REPOSITORY, extra_folders, runs_root

_LIMIT = 50 * 2**20  # bytes; Ray refuses more than 500 MiB, and code is never this large


class PackageError(Exception):
    """The code cannot be packed. The message says why."""


@dataclass(frozen=True)
class Package:
    """A folder to send, and the environment variables that a process in it needs."""

    folder: Path
    environment: dict[str, str]


def build(repository: Path = REPOSITORY) -> Package:
    """The package of the code in a checkout, in runs/.packages/<hash>; an existing one is reused. Raises PackageError."""
    files = _files(repository)
    size = sum(path.stat().st_size for path in files.values())
    if size > _LIMIT:
        largest = max(files.values(), key=lambda path: path.stat().st_size)
        raise PackageError(
            f"the code to send is {size / 2**20:.0f} MiB; its largest file is {largest}: move data out of the code's folders"
        )
    folder = runs_root() / ".packages" / hash_of(files)
    if not folder.exists():
        _copy(files, folder)
    extras = [f"extra/{number}" for number, _ in enumerate(extra_folders())]
    return Package(
        folder,
        {
            EXTRA: os.pathsep.join(extras),  # relative to the working directory; empty too, in place of the head's own
            **as_environment(git_state(repository)),  # the nodes have no git folder to ask
        },
    )


def _files(repository: Path) -> dict[str, Path]:
    """Name in the package -> local file: the source tree, and a mark in the user's folders that have no workloads."""
    return source_files(repository) | {f"extra/{number}/workloads/.here": Path(os.devnull) for number, _ in enumerate(extra_folders())}


def _copy(files: dict[str, Path], folder: Path) -> None:
    """Make `folder` atomically. Several flows, and several threads of a flow, may do so at once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    for name, path in files.items():
        (temporary / name).parent.mkdir(parents=True, exist_ok=True)
        (temporary / name).write_bytes(path.read_bytes())
    try:
        temporary.rename(folder)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not folder.exists():
            raise
