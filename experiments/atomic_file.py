"""Write a file atomically, also across a crash: temporary file, fsync, rename, fsync of the folder."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def atomic_write(path: Path, text: str) -> None:
    """Write `text` as UTF-8. Raises OSError; `path` then keeps its old content."""
    atomic_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def atomic_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file in the same folder, then rename it to `path`. Raises what `write` raises, and OSError.

    Such an error names a file also where the system does not, as when a write fails: whoever reads of it should learn of which disk it is.
    """
    # A shared folder is written by several hosts, so a process id would not be unique
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        write(temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    fsync_folder(path.parent)


def remove_temporaries(path: Path) -> None:
    """Remove what writers of `path` left that were killed. Nobody may write it now. Raises OSError."""
    for temporary in path.parent.glob(f".{path.name}.*.tmp"):
        temporary.unlink(missing_ok=True)


def fsync_folder(folder: Path) -> None:
    """Make files that were renamed or created in `folder` survive a power cut. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
