"""The marks beside a speed-up in the tables: what a reader must know before taking the number for a finding."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from experiments.stats.verdict import DISCOVERY, Verdict
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import OF_MANY, TOO_WIDE
from tasks.report.text_format import listed, percent


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


_ALIKE = 0.02  # relative: the ratio of two values may be so far from the one beside them, as rounds differ a little
_SIGNS = {Mark.SAME: "=", Mark.UNDECIDED: "?", Mark.OF_MANY: "?*", Mark.UNPROVEN: "†", Mark.STRUCK: "✗"}
_MEANINGS = {
    Mark.SAME: "the whole interval lies within the smallest effect that counts",
    Mark.UNDECIDED: "not shown to differ from its baseline at the level that a verdict needs",
    Mark.OF_MANY: f"its interval alone would decide it, but not among all comparisons (false discovery rate: {percent(DISCOVERY)})",
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
    beside = f"undecided though its interval leaves out {unchanged:g}"
    if ratio.p_value < cell.levels.chance:
        return f"{beside}: it may be less than the smallest effect that counts"
    below = f"below {percent(cell.levels.chance)}, and its interval allows {percent(1 - cell.levels.confidence)}"
    return f"{beside}: a verdict needs a chance of error {below}"


def rounds_of_ratio(cell: Cell) -> str:
    """The rounds by which a cell and its baseline are compared, `round 3`, where the ratio is not that of the two values: each value is of
    all rounds that the cell itself has, without those that were disturbed. Empty where the two agree to 2 %."""
    ratio, baseline = cell.speedup, cell.baseline
    if ratio is None or ratio.linear or baseline is None or cell.estimate is None or baseline.estimate is None:
        return ""
    of_values = cell.estimate.value / baseline.estimate.value
    of_values = 1 / of_values if cell.metric.lower_is_better else of_values
    own, others = ({row.trial.repeat for row in side.measured} for side in (cell, baseline))
    if own == others or not own & others or abs(ratio.value / of_values - 1) < _ALIKE:
        return ""
    both = sorted(own & others)
    return f"round{'s' if len(both) > 1 else ''} {listed([str(number) for number in both], len(both))}"


def in_order(marks: Iterable[Mark]) -> list[Mark]:
    """Each mark once, in the order of Mark."""
    present = set(marks)
    return [mark for mark in Mark if mark in present]
