"""Of which ranks the traced steps tell nothing: beside every figure that is a mean of ranks."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.analysis.cell import Cell
from tasks.analysis.waterfall import missing_ranks
from tasks.report.text_format import listed


def missing_rank_sentences(cells: Iterable[Cell]) -> list[str]:
    """A sentence for each cell and reason; empty where the traces of all ranks are there."""
    lines = []
    for cell in cells:
        alike: dict[str | None, list[str]] = {}
        for rank, why in missing_ranks(cell).items():
            alike.setdefault(why, []).append(str(rank))
        for why, ranks in alike.items():
            which = f"the trace of rank {ranks[0]} is" if len(ranks) == 1 else f"the traces of ranks {listed(ranks)} are"
            lines.append(f"{cell.short}: {which} missing ({why or 'why was not recorded'}), so all means are of the other ranks.")
    return lines
