"""The source files that a trial's process may import, and their hash: which code ran, whatever a commit says.

The files are those of cluster/, experiments/ and the user's workloads, wherever they lie: in a checkout, in the code that was sent to a
cluster, or installed. The flow and the worker hash what each of them imports from, so equal hashes mean equal code.
`python -m cluster.source_tree` prints the hash of the code here, to check a published one against a commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from experiments.config.paths import REPOSITORY, extra_folders

PARTS = ("cluster", "experiments")
_SUFFIXES = (".py", ".yaml", ".csv", ".json", ".txt")
_EXCLUDED = ("__pycache__", "stack", "kuberay", "environments")  # nothing that a trial reads
_UNREAD = ("experiments/suites/", "experiments/campaigns/")  # nor anything of these: a trial knows what it was given of its suite
DIGITS = 16


def source_files(repository: Path = REPOSITORY) -> dict[str, Path]:
    """Name -> file, sorted by name. Names do not hold the location; those of the user's workloads begin with `extra/<number>/`."""
    files = {path.relative_to(repository).as_posix(): path for part in PARTS for path in _below(repository / part)}
    files = {name: path for name, path in files.items() if not name.startswith(_UNREAD)}
    for number, folder in enumerate(extra_folders()):
        files |= {f"extra/{number}/{path.relative_to(folder).as_posix()}": path for path in _below(folder / "workloads")}
    return dict(sorted(files.items()))


def hash_of(files: Mapping[str, Path]) -> str:
    """16 hex digits of a SHA-256 over the names and contents of `files`, whatever their order. Raises OSError."""
    content = hashlib.sha256()
    for name, path in sorted(files.items()):
        content.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()[:DIGITS]


def source_tree() -> str:
    """The hash of the code that this process imports from, as it lies there now: some 20 ms. Raises OSError."""
    return hash_of(source_files())


@cache
def running_tree() -> str:
    """`source_tree` as it was when this process first asked: where it imports its modules. A forked process inherits it. Raises OSError."""
    return source_tree()


def _below(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    return [path for path in files if not set(_EXCLUDED) & set(path.relative_to(folder).parts)]


if __name__ == "__main__":
    print(source_tree())
