"""An error of somebody else's as a part of a message."""

from __future__ import annotations

from pathlib import Path

_MOST = 300  # characters: a message that holds it stays one that is read


def first_line(error: BaseException, *, empty: str | None = None) -> str:
    """The first line of an error's text; of one without text `empty`, None: its type's name."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__ if empty is None else empty)[:_MOST]


def why_not_written(path: Path, error: OSError) -> str:
    """Why a file or folder cannot be written, for a person who named it: what stands in its way, else the system's reason."""
    there = next((one for one in path.parents if one.exists()), None)
    if there is not None and not there.is_dir():
        return f"{there} is no folder"
    return error.strerror or first_line(error)
