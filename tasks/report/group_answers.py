"""The headline of a sweep whose cells are several groups of work: what is decided in each of them, and why there are several."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.stats.verdict import Verdict
from tasks.analysis.cell import Cell
from tasks.report.answer import MOST_NAMES, Answer
from tasks.report.cell_names import without_labels
from tasks.report.text_format import change_text, listed

APART = "Cells that do not do the same work are not compared with each other."
ALL_APART = "Nothing is compared: no two cells with a value do the same work."
ON_OTHERS = "Cells on different numbers of devices are not ranked against each other."
BOTH_APART = "Cells that do not do the same work, or do it on different numbers of devices, are not ranked against each other."


def of_groups(answers: Sequence[Answer]) -> str:
    """Of each group with something to compare its winner, by how much, or that it is undecided; then why cells are in several groups.

    More than MOST_NAMES groups are counted. Those with a winner are named first, and all others only where there is room.
    """
    first, others = answers[0].best, [answer.best for answer in answers[1:]]
    works, devices = any(other.work != first.work for other in others), any(other.devices != first.devices for other in others)
    why = BOTH_APART if works and devices else ON_OTHERS if devices else APART
    ranked = [answer for answer in answers if answer.compared > 1]
    if not ranked:
        return ALL_APART if works and not devices else why
    if len(ranked) <= MOST_NAMES:
        return f"{_of_few(ranked)}. {why}"
    return f"{_of_many(ranked)}. {why}"


def _of_few(ranked: Sequence[Answer]) -> str:
    """`a: MP-1 is fastest, x1.50 (...) over MP-0; undecided: b and c`."""
    said = {answer.work: _decided(answer) for answer in ranked}
    decided = [f"{work}: {what}" for work, what in said.items() if what]
    rest = [work for work, what in said.items() if not what]
    undecided = [f"{'undecided' if decided else 'Undecided'}: {listed(rest, MOST_NAMES)}"] if rest else []
    return "; ".join([*decided, *undecided])


def _of_many(ranked: Sequence[Answer]) -> str:
    """`A winner in 5 of 9 groups of cells: a: MP-1 is fastest, x1.50 (...) over MP-0; ...; and 1 more`."""
    won = [answer for answer in ranked if answer.winner is not None]
    if not won:
        return f"No winner in {len(ranked)} groups of cells"
    named = [f"{answer.work}: {_decided(answer)}" for answer in won[: MOST_NAMES if len(won) == MOST_NAMES else MOST_NAMES - 1]]
    rest = [f"and {len(won) - len(named)} more"] if len(won) > len(named) else []
    where = f"{len(won)} of {len(ranked)}" if len(won) < len(ranked) else f"each of {len(ranked)}"
    return f"A winner in {where} groups of cells: {'; '.join([*named, *rest])}"


def _decided(answer: Answer) -> str:
    """`cuda_graph is best, x10 (8.19–12.28) over no cuda_graph`, `MP-1 is the same as MP-0 to within 2.0 %`; empty if undecided.

    Several cells may share the first place though each is faster than the baseline: then the best of them is told beside it.
    """
    said = ""
    if answer.same_within:
        names = [cell.short for cell in answer.level]
        are = "is" if len(names) == 1 else "are"
        said = f"{listed(names, MOST_NAMES)} {are} the same as {answer.best.short} to within {answer.same_within}"
    elif answer.ahead_of is not None:
        over = f"{answer.lead} over {answer.ahead_of.other.short}"
        unproven = f"{answer.best.short} was measured {over}, not claimed: loss parity unproven"
        said = f"{answer.headline}, {over}" if answer.winner else unproven
    elif over := _over_baseline(answer.best):
        said = f"no clear winner, but {answer.best.short} is {over}"
    return without_labels(said, answer.work)


def _over_baseline(cell: Cell) -> str:
    """`x8.75 (6.39–11.98) over the baseline no cuda_graph`; empty unless the table calls it faster and that may be claimed."""
    if cell.verdict is not Verdict.FASTER or cell.speedup is None or cell.baseline is None or not cell.may_lead(cell.baseline):
        return ""
    return f"{change_text(cell.speedup, cell.metric)} over the baseline {cell.baseline.short}"
