"""What is said of a sweep whose cells are several groups of work: its headline, why there are several, and what is decided in each."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.report.answer import MOST_NAMES, NOT_CLAIMED, Answer, over_baseline
from tasks.report.cell_names import without_labels
from tasks.report.text_format import listed

APART = "Cells that do not do the same work are not compared with each other."
ALL_APART = "Nothing is compared: no two cells with a value do the same work."
ON_OTHERS = "Cells on different numbers of devices are not ranked against each other."
BOTH_APART = "Cells that do not do the same work, or do it on different numbers of devices, are not ranked against each other."


def headline_of_groups(answers: Sequence[Answer]) -> str:
    """In how many groups there is a winner, and which where it is the same in each; of the only one with something to compare its headline.

    What is decided in each group stands below, a line for each.
    """
    ranked = _ranked(answers)
    if not ranked:
        works, devices = _differ(answers)
        return ALL_APART if works and not devices else why_apart(answers)
    if len(ranked) == 1:
        only = ranked[0]
        return f"{only.work}: {without_labels(only.headline, only.work)}"
    won = [answer for answer in ranked if answer.winner is not None]
    if not won:
        return f"No winner in {len(ranked)} groups of cells"
    if len(won) < len(ranked):
        return f"A winner in {len(won)} of {len(ranked)} groups of cells"
    said = {without_labels(answer.headline, answer.work) for answer in won}
    return f"{said.pop() if len(said) == 1 else 'A winner'} in each of {len(ranked)} groups of cells"


def why_apart(answers: Sequence[Answer]) -> str:
    """Why cells are in several groups."""
    works, devices = _differ(answers)
    return BOTH_APART if works and devices else ON_OTHERS if devices else APART


def of_groups(answers: Sequence[Answer]) -> str:
    """In one line without its stop, of each group with something to compare its winner, by how much, or that it is undecided.

    More than MOST_NAMES groups are counted. Those with a winner are named first, and all others only where there is room.
    """
    ranked = _ranked(answers)
    if not ranked:
        return headline_of_groups(answers)
    return _of_few(ranked) if len(ranked) <= MOST_NAMES else _of_many(ranked)


def is_any_compared(answers: Sequence[Answer]) -> bool:
    """Whether a group has more than one cell."""
    return bool(_ranked(answers))


def _ranked(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.compared > 1]


def _differ(answers: Sequence[Answer]) -> tuple[bool, bool]:
    """Whether the groups differ in their work, and in their number of devices."""
    first, others = answers[0].best, [answer.best for answer in answers[1:]]
    return any(other.work != first.work for other in others), any(other.devices != first.devices for other in others)


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
        unproven = f"{answer.best.short} was measured {over}, {NOT_CLAIMED}"
        said = f"{answer.headline}, {over}" if answer.winner else unproven
    elif over := over_baseline(answer.best):
        said = f"no clear winner, but {answer.best.short} is {over}"
    return without_labels(said, answer.work)
