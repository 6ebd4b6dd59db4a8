"""How many of a night's cells are worse, better, undecided and the same, and by which metrics: a cell counts once, however many it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.regression.definition import METRICS
from experiments.stats.verdict import Verdict
from tasks.nightly.recording import judged
from tasks.nightly.store import CellVerdict, Night
from tasks.report.text_format import listed, plural

_MOST_METRICS = 4  # that a sentence names


@dataclass(frozen=True)
class CellCount:
    """So many cells of a night have this in common. `metrics`: by which, in the night's order; none of what is the same."""

    word: str
    cells: int
    metrics: Sequence[str] = ()

    @property
    def text(self) -> str:
        """`2 cells worse in throughput and energy per sample`, `5 cells the same`."""
        names = [METRICS[metric].label for metric in self.metrics]
        return f"{plural(self.cells, 'cell')} {self.word}{f' in {listed(names, _MOST_METRICS)}' if names else ''}"


def cell_counts(night: Night) -> list[CellCount]:
    """What changed first. A cell that is worse in one metric and better in another counts as both; one that changed in nothing is undecided
    if one of its metrics is, else the same. Without the cells that cannot be judged yet."""
    cells: dict[str, list[CellVerdict]] = {}
    for item in judged(night):
        cells.setdefault(item.cell, []).append(item)
    worse, better = _with(cells, Verdict.SLOWER), _with(cells, Verdict.FASTER)
    still = {cell: items for cell, items in cells.items() if cell not in worse and cell not in better}
    undecided = _with(still, Verdict.UNDECIDED)
    counts = [_count(word, items) for word, items in (("worse", worse), ("better", better), ("undecided", undecided))]
    return [count for count in (*counts, CellCount("the same", len(still) - len(undecided))) if count.cells]


def _with(cells: dict[str, list[CellVerdict]], verdict: Verdict) -> dict[str, list[CellVerdict]]:
    """Cell -> its metrics of this verdict; without the cells that have none."""
    found = {cell: [item for item in items if item.verdict is verdict] for cell, items in cells.items()}
    return {cell: items for cell, items in found.items() if items}


def _count(word: str, cells: dict[str, list[CellVerdict]]) -> CellCount:
    return CellCount(word, len(cells), list(dict.fromkeys(item.metric for items in cells.values() for item in items)))
