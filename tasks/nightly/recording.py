"""The first nights of a cell: it is recorded, and judged once its baseline has as many nights as it needs."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.nightly.store import CellVerdict, Night
from tasks.report.text_format import listed, plural


def judged(night: Night) -> list[CellVerdict]:
    """The verdicts on cells, without those that cannot be one yet."""
    return [item for item in night.cell_verdicts if item.needs is None]


def records_only(night: Night) -> bool:
    """Whether nothing of the night could be judged, for want of nights to compare with."""
    return bool(night.cell_verdicts) and not judged(night)


def nothing_to_do(night: Night) -> bool:
    """Whether verdicts begin by themselves after more such nights. Where other work disturbs every trial of a cell, they never would."""
    return records_only(night) and not uncounted(night)


def uncounted(night: Night) -> list[CellVerdict]:
    """Cells without a verdict of which other work disturbed every trial tonight, so that the night is in no baseline of theirs."""
    return [item for item in _waiting(night) if item.disturbed]


def recorded(night: Night) -> list[str]:
    """`Night 1 of 5: 7 cells recorded; verdicts begin with night 6`: a sentence, without its stop, for all cells that are as far.

    Without the cells that have a verdict on some metric. A night of which other work disturbed every trial is none of the 5.
    """
    groups: dict[tuple[int, int | None, int, bool], list[CellVerdict]] = {}
    for item in _waiting(night):
        groups.setdefault((len(item.baseline), item.needs, item.uncounted, bool(item.disturbed)), []).append(item)
    alone = not judged(night) and len(groups) == 1
    return [_sentence(items, alone=alone) for items in groups.values()]


def _waiting(night: Night) -> list[CellVerdict]:
    """Of each cell that was measured and has no verdict on any metric yet, what is known of its first."""
    known = {item.cell for item in judged(night)}
    cells: dict[str, CellVerdict] = {}
    for item in night.cell_verdicts:
        if item.needs is not None and item.repeats and item.cell not in known:  # without repeats it was missed
            cells.setdefault(item.cell, item)
    return list(cells.values())


def _sentence(cells: Sequence[CellVerdict], *, alone: bool) -> str:
    """Of cells that are as far. `alone`: they are all cells of the night, and need not be named."""
    first, have, needs = cells[0], len(cells[0].baseline), cells[0].needs or 0
    which = "" if alone else f" ({listed([cell.name for cell in cells], 4)})"
    if first.disturbed:
        return (
            f"Not counted: {plural(len(cells), 'cell')}{which}, since other work disturbed every trial ({first.disturbed}); "
            f"{have} of the {needs} nights that verdicts need so far"
        )
    earlier = f" ({plural(first.uncounted, 'earlier night')} not counted: other work disturbed every trial)" if first.uncounted else ""
    return f"Night {have + 1} of {needs}{earlier}: {plural(len(cells), 'cell')} recorded{which}; verdicts begin with night {needs + 1}"
