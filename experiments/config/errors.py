"""Errors in what a user wrote, in a file or on the command line: each names file, line and key, and gives a hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One error in a file: where it is, what is wrong, and a hint at what would be right."""

    file: str
    line: int | None
    key: str
    problem: str
    hint: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(filter(None, [where, self.key, self.problem])) + (f"; {self.hint}" if self.hint else "")


class UserError(Exception):
    """What the person at the command line can mend: its message says what is wrong and what to do, and is all that they see."""


class DamagedFile(UserError):
    """A file that is there does not hold what it should. The message names it, where in it, what is wrong, and what to do."""

    def __init__(self, path: Path, where: str, problem: str, hint: str) -> None:
        super().__init__(f"{path}{f', {where}:' if where else ''} {problem}; {hint}")
        self.path, self.where, self.problem, self.hint = path, where, problem, hint


class ConfigError(UserError):
    """Invalid user input. `problems` has every problem found; `file`, `line`, `key`, `problem` and `hint` are those of the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)
        first = self.problems[0]
        self.file, self.line, self.key, self.problem, self.hint = first.file, first.line, first.key, first.problem, first.hint

    @classmethod
    def one(cls, file: str | Path, line: int | None, key: str, problem: str, hint: str) -> Self:
        """An error with a single problem."""
        return cls([Problem(str(file), line, key, problem, hint)])


def dotted(key: KeyPath) -> str:
    """A key path as people write it: `conditions[0].set.batch_size`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def choose(wrong: object, known: Iterable[object]) -> str:
    """A hint: `did you mean 'bf16'?` where a known name is similar to the wrong one, and the list of known names if it is short."""
    names = [str(name) for name in known]
    near = difflib.get_close_matches(str(wrong), names, n=1, cutoff=0.6)
    if near and len(names) > 12:
        return f"did you mean {near[0]!r}?"
    listed = "known: " + ", ".join(names) if names else "there is none"
    return f"did you mean {near[0]!r}? {listed}" if near else listed
