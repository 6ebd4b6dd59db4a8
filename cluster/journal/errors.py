"""What is wrong with a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from experiments.config.errors import DamagedFile

CHANGED = "the file was changed after it was written; `sweep resume` keeps it aside and runs the trial again"


class JournalError(DamagedFile):
    """The journal is not as its trial left it. The message names the file and the line."""

    def __init__(self, path: Path, line: int, problem: str, hint: str = CHANGED) -> None:
        super().__init__(path, f"line {line}" if line else "", problem, hint)
        self.line = line


class LaterJournal(JournalError):
    """A later version of this program wrote it: nothing is wrong with it, and this version can neither read nor replace it."""


class JournalInUse(TimeoutError):
    """Another process still writes it, perhaps on another host. The message names the file, and that process where it is known."""

    @classmethod
    def after(cls, waited_s: float, path: Path, writer: str) -> Self:
        """The error after `waited_s` seconds for `writer` to end."""
        return cls(f"{path}: {writer} or a child of it still writes there after {waited_s:g} s, so no other attempt may; end them")
