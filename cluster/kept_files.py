"""Where the trials of a pool keep what later ones can use again: compiled graphs, initial weights, rates of matrix products.

Embedded pools keep it below runs/, as the launcher says in a variable; the jobs of a Ray cluster on their node's disk. A trial that was
started in another way, such as by hand, keeps nothing.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cluster.process_marks import POOL_MARK

KEPT = "SWEEPBENCH_KEPT"  # the folder; a pool's `env` may set it for its nodes


def kept_folder(name: str) -> Path | None:
    """The folder `name` of what is kept here, which need not exist; None where nothing is kept.

    What lies in it is run, so nobody else may write there. Raises OSError if it belongs to another user.
    """
    root = kept_root()
    if root is None:
        return None
    folder = root / name
    if folder.is_symlink() or folder.exists():
        _check(folder)
    return folder


def kept_root() -> Path | None:
    """The folder of all that is kept here; None where nothing is kept."""
    if told := os.environ.get(KEPT):
        return Path(told).expanduser()
    if POOL_MARK not in os.environ:
        return None
    from experiments.components.data.staging import cache_root

    return cache_root()


def make_private(folder: Path) -> None:
    """Make the folder if need be, for its owner alone. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check(folder)


def _check(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} is no folder of this user's own")
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)
