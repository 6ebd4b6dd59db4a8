"""Whether a file is still the one that was read, without reading it again."""

from __future__ import annotations

import os

Stamp = tuple[int, int, int, int] | None


def file_stamp(path: str | os.PathLike[str]) -> Stamp:
    """Another one for another content, unless somebody hides the change; None where there is nothing."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
