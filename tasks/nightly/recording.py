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


def recorded(night: Night) -> list[str]:
    """`Night 1 of 5: 7 cells recorded; verdicts begin with night 6`: a sentence, without its stop, for all cells that are as far.

    Without the cells that have a verdict on some metric.
    """
    known = {item.cell for item in judged(night)}
    cells: dict[tuple[int, int], dict[str, str]] = {}
    for item in night.cell_verdicts:
        if item.needs is not None and item.repeats and item.cell not in known:  # without repeats it was missed
            cells.setdefault((len(item.baseline) + 1, item.needs), {})[item.cell] = item.name
    return [_sentence(place, needs, list(names.values()), alone=not known and len(cells) == 1) for (place, needs), names in cells.items()]


def _sentence(place: int, needs: int, names: Sequence[str], *, alone: bool) -> str:
    """`alone`: they are all cells of the night, and need not be named."""
    which = "" if alone else f" ({listed(list(names), 4)})"
    return f"Night {place} of {needs}: {plural(len(names), 'cell')} recorded{which}; verdicts begin with night {needs + 1}"
