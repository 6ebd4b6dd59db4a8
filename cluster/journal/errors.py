"""What is wrong with a journal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cluster.process_marks import MARK
from experiments.config.errors import DamagedFile

CHANGED = "the file was changed after it was written; `sweep resume` keeps it aside and runs the trial again"


class JournalError(DamagedFile):
    """The journal is not as its trial left it. The message names the file and the line."""

    def __init__(self, path: Path, line: int, problem: str, hint: str = CHANGED) -> None:
        super().__init__(path, f"line {line}" if line else "", problem, hint)
        self.line = line


class LaterJournal(JournalError):
    """A later version of this program wrote it: nothing is wrong with it, and this version can neither read nor replace it."""


@dataclass(frozen=True)
class Writer:
    """Who writes a journal, as far as that says. `trial`: the key of the trial that it is of."""

    pid: int | None = None
    host: str | None = None
    attempt: int | None = None
    trial: str | None = None

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        return f"process {self.pid}{f' on {self.host}' if self.host else ''} (attempt {self.attempt})"

    @property
    def how_to_end(self) -> str:
        """For whoever may log in there: a pool reaches none of its processes on a host that it has lost."""
        if self.host is None or self.trial is None:
            return "end them"
        return f"end them on {self.host}, where `grep -lsz {MARK}={self.trial} /proc/[0-9]*/environ` lists them"


class JournalInUse(TimeoutError):
    """Another process still writes it, perhaps on another host. The message names the file, and that process where it is known."""

    @classmethod
    def after(cls, waited_s: float, path: Path, writer: Writer) -> Self:
        """The error after `waited_s` seconds for `writer` to end."""
        who = f"{writer} or a child of it still writes there after {waited_s:g} s"
        return cls(f"{path}: {who}, so no other attempt may; {writer.how_to_end}")
