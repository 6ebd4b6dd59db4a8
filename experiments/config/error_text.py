"""An error of somebody else's as a part of a message."""

from __future__ import annotations

_MOST = 300  # characters: a message that holds it stays one that is read


def first_line(error: BaseException, *, empty: str | None = None) -> str:
    """The first line of an error's text; of one without text `empty`, None: its type's name."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__ if empty is None else empty)[:_MOST]
