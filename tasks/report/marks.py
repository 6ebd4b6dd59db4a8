"""The marks beside a speed-up in the tables: what a reader must know before taking the number for a finding."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from experiments.stats.verdict import Verdict
from tasks.analysis.cell import Cell


class Mark(StrEnum):
    """A mark as the pages write it. `sign` is the terminal's."""

    SAME = "same"
    UNDECIDED = "undecided"
    UNPROVEN = "unproven"
    STRUCK = "struck"

    @property
    def sign(self) -> str:
        """One character, for the terminal."""
        return _SIGNS[self]

    @property
    def meaning(self) -> str:
        """What stands under the table."""
        return _MEANINGS[self]


_SIGNS = {Mark.SAME: "=", Mark.UNDECIDED: "?", Mark.UNPROVEN: "†", Mark.STRUCK: "✗"}
_MEANINGS = {
    Mark.SAME: "the whole interval lies within the smallest effect that counts",
    Mark.UNDECIDED: "not shown to differ from its baseline",
    Mark.UNPROVEN: "nothing shows that it learns what its reference learns, so no speed-up is claimed",
    Mark.STRUCK: "the loss differs from its reference's, so no speed-up is claimed",
}


def marks_of(cell: Cell) -> list[Mark]:
    """The marks of a cell's speed-up, in the order of Mark; none where it has no speed-up, or one that is decided and claimed."""
    if cell.speedup is None:
        return []
    known = {
        Mark.SAME: cell.verdict is Verdict.SAME,
        Mark.UNDECIDED: cell.verdict is Verdict.UNDECIDED,
        Mark.UNPROVEN: not cell.claimed and not cell.struck,
        Mark.STRUCK: cell.struck,
    }
    return [mark for mark in Mark if known[mark]]


def in_order(marks: Iterable[Mark]) -> list[Mark]:
    """Each mark once, in the order of Mark."""
    present = set(marks)
    return [mark for mark in Mark if mark in present]
