"""The marks beside a speed-up in the tables: what a reader must know before taking the number for a finding."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from experiments.stats.verdict import DISCOVERY, Verdict
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import OF_MANY, TOO_WIDE
from tasks.report.text_format import percent


class Mark(StrEnum):
    """A mark as the pages write it. `sign` is the terminal's."""

    SAME = "same"
    UNDECIDED = "undecided"
    OF_MANY = "undecided, one of many"
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


_SIGNS = {Mark.SAME: "=", Mark.UNDECIDED: "?", Mark.OF_MANY: "?*", Mark.UNPROVEN: "†", Mark.STRUCK: "✗"}
_MEANINGS = {
    Mark.SAME: "the whole interval lies within the smallest effect that counts",
    Mark.UNDECIDED: "not shown to differ from its baseline",
    Mark.OF_MANY: f"its interval alone would decide it, but not among all comparisons: their false discovery rate is held to {percent(DISCOVERY)}",
    Mark.UNPROVEN: "nothing shows that it learns what its reference learns, so no speed-up is claimed",
    Mark.STRUCK: "the loss differs from its reference's, so no speed-up is claimed",
}


def marks_of(cell: Cell) -> list[Mark]:
    """The marks of a cell's speed-up, in the order of Mark; none where it has no speed-up, or one that is decided and claimed."""
    if cell.speedup is None:
        return []
    known = {
        Mark.SAME: cell.verdict is Verdict.SAME,
        Mark.UNDECIDED: cell.verdict is Verdict.UNDECIDED and cell.why_undecided != OF_MANY,
        Mark.OF_MANY: cell.verdict is Verdict.UNDECIDED and cell.why_undecided == OF_MANY,
        Mark.UNPROVEN: not cell.claimed and not cell.struck,
        Mark.STRUCK: cell.struck,
    }
    return [mark for mark in Mark if known[mark]]


def why_open(cell: Cell) -> str:
    """Why a cell's comparison is undecided, for a note at the cell; empty where it is not. An interval that lies beside no change looks
    decided, so there it says what else a verdict takes; of OF_MANY the mark does."""
    ratio = cell.speedup
    if cell.why_undecided is None or ratio is None or cell.why_undecided == OF_MANY:
        return ""
    unchanged = 0.0 if ratio.linear else 1.0
    if cell.why_undecided != TOO_WIDE or ratio.low <= unchanged <= ratio.high:
        return f"undecided: {cell.why_undecided}"
    if ratio.p_value < cell.levels.chance:
        return f"undecided though beside {unchanged:g}: it may be less than the smallest effect that counts"
    return f"undecided though beside {unchanged:g}: a verdict takes a chance of error below {percent(cell.levels.chance)}"


def in_order(marks: Iterable[Mark]) -> list[Mark]:
    """Each mark once, in the order of Mark."""
    present = set(marks)
    return [mark for mark in Mark if mark in present]
