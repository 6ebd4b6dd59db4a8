"""Section: how many DataLoader processes are enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.metrics import Direction, Metric
from experiments.stats.verdict import Verdict
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import Comparison, judge_pairs
from tasks.report.answer import superlative
from tasks.report.section import Bullets, ReportSource, Section
from tasks.report.text_format import change, change_interval, listed, percent

WORKERS = "dataloader_workers"


def section(source: ReportSource) -> Section | None:
    lines = [row.sentence for row in saturation(source.cells)]
    if not lines:
        return None
    # a single sentence stands beside the winner at the page's head
    return Section("data_loading", "Data loading", [Bullets(lines)], part_of_previous=True, on_page=len(lines) > 1)


@dataclass(frozen=True)
class Saturation:
    """The fewest DataLoader processes that saturate the device, for cells that differ in nothing else."""

    cells: Sequence[Cell]
    sentence: str


def saturation(cells: Sequence[Cell], of: Cell | None = None) -> list[Saturation]:
    """One for each row that varies the DataLoader processes; none of a metric that is better neither high nor low. `of`: its row alone."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if cell.estimate and cell.metric.direction is not Direction.NEITHER and isinstance(cell.axes.get(WORKERS), int):
            rest = tuple((axis, repr(value)) for axis, value in cell.axes.items() if axis != WORKERS)
            groups.setdefault((*rest, repr(cell.work)), []).append(cell)
    rows = [sorted(group, key=_workers) for group in groups.values() if len(group) > 1]
    return [Saturation(row, _sentence(row)) for row in rows if of is None or of in row]


def _workers(cell: Cell) -> int:
    return int(cell.axes[WORKERS] or 0)


def _mp(cell: Cell) -> str:
    return f"MP-{cell.axes[WORKERS]}"


def _sentence(row: Sequence[Cell]) -> str:
    """`row` is sorted by workers."""
    cell, later = _enough(row)
    where = " · ".join(part for part in row[0].short.split(" · ") if part != _mp(row[0]))
    place = f"{where}: " if where else ""
    waits = cell.mean("data_wait_share")
    wait = f"; the device waits for the host {percent(waits)} of the step" if waits is not None else ""
    gain = f"{_against(judge_pairs([(cell, row[0])])[0], cell.metric)} over {_mp(row[0])}" if cell is not row[0] else ""
    if not later:
        return f"{place}{_mp(cell)} is the {superlative(cell.metric)} measured ({gain}), and no larger count was tried{wait}."
    if cell is row[0] and all(found.verdict is Verdict.UNDECIDED for _, found in later):
        names = listed([f"{_mp(other)} {_against(found, cell.metric)}" for other, found in later])
        undecided = "undecided" if place else "Undecided"
        return f"{place}{undecided} how many are enough: over {_mp(cell)}, {names}{wait}."
    parts = []
    for word, one, many in _BEYOND:
        of_word = [(other, found) for other, found in later if found.verdict is word]
        said = [_mp(o) if word is Verdict.SAME else f"{_mp(o)} {_against(found, cell.metric)}" for o, found in of_word]
        if said:
            parts.append(f"{listed(said)} {one if len(said) == 1 else many}")
    doubt = any(found.verdict is Verdict.UNDECIDED for _, found in later)
    return f"{place}{_mp(cell)} {'may be' if doubt else 'is'} enough{f': {gain}' if gain else ''}; {'; '.join(parts)}{wait}."


def _against(found: Comparison, metric: Metric) -> str:
    return f"{change(found.ratio, metric)} {change_interval(found.ratio, metric)}"


# verdict on larger counts, and how it reads of one count and of several
_BEYOND = (
    (Verdict.SAME, "adds nothing", "add nothing"),
    (Verdict.SLOWER, "is slower", "are slower"),
    (Verdict.UNDECIDED, "is undecided", "are undecided"),
)


def _enough(row: Sequence[Cell]) -> tuple[Cell, list[tuple[Cell, Comparison]]]:
    """The cell with the fewest workers that no cell with more is shown to beat; and each with more, against it."""
    for index, cell in enumerate(row):
        later = row[index + 1 :]
        found = judge_pairs([(other, cell) for other in later])
        if not any(comparison.verdict is Verdict.FASTER for comparison in found):
            return cell, list(zip(later, found, strict=True))
    raise ValueError("a row has at least one cell")
