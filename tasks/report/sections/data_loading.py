"""Section: how many DataLoader processes are enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.metrics import Direction
from experiments.stats.estimate import Estimate
from experiments.stats.verdict import Verdict
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import judge_pairs, ratio_of
from tasks.report.section import Bullets, ReportSource, Section
from tasks.report.text_format import change, change_with_verdict, listed, percent, times

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


def saturation(cells: Sequence[Cell]) -> list[Saturation]:
    """One for each row that varies the DataLoader processes; none of a metric that is better neither high nor low."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if cell.estimate and cell.metric.direction is not Direction.NEITHER and isinstance(cell.axes.get(WORKERS), int):
            rest = tuple((axis, repr(value)) for axis, value in cell.axes.items() if axis != WORKERS)
            groups.setdefault(rest, []).append(cell)
    rows = [sorted(group, key=_workers) for group in groups.values() if len(group) > 1]
    return [Saturation(row, _sentence(row)) for row in rows]


def _workers(cell: Cell) -> int:
    return int(cell.axes[WORKERS] or 0)


def _mp(cell: Cell) -> str:
    return f"MP-{cell.axes[WORKERS]}"


def _sentence(row: Sequence[Cell]) -> str:
    """`row` is sorted by workers."""
    cell, later = _enough(row)
    where = " · ".join(part for part in row[0].name.split(" · ") if part != _mp(row[0]))
    head = f"{where}: {_mp(cell)}" if where else _mp(cell)
    metric, lead = cell.metric, ratio_of(cell, row[0])
    by = change(lead, metric) if lead.linear else f"{times(lead.value)[1:]}x"
    gain = f"{by} over {_mp(row[0])}" if cell is not row[0] else ""
    waits = cell.mean("data_wait_share")
    wait = f"; data wait is {percent(waits)} of the step" if waits is not None else ""
    if not later:
        return f"{head} is the fastest measured ({gain}), and no larger count was tried{wait}."
    parts = []
    for word, one, many in _BEYOND:
        names = [_mp(o) if w is Verdict.SAME else f"{_mp(o)} {change_with_verdict(r, None, metric)}" for o, r, w in later if w is word]
        if names:
            parts.append(f"{listed(names)} {one if len(names) == 1 else many}")
    doubt = any(word is Verdict.UNDECIDED for *_, word in later)
    return f"{head} {'may be' if doubt else 'is'} enough{f': {gain}' if gain else ''}; {'; '.join(parts)}{wait}."


# verdict on larger counts, and how it reads of one count and of several
_BEYOND = (
    (Verdict.SAME, "adds nothing", "add nothing"),
    (Verdict.SLOWER, "is slower", "are slower"),
    (Verdict.UNDECIDED, "is undecided", "are undecided"),
)


def _enough(row: Sequence[Cell]) -> tuple[Cell, list[tuple[Cell, Estimate, Verdict]]]:
    """The cell with the fewest workers that no cell with more is shown to beat; and of each with more, its ratio and verdict."""
    for index, cell in enumerate(row):
        found = judge_pairs([(other, cell) for other in row[index + 1 :]])
        later = [(other, comparison.ratio, comparison.verdict) for other, comparison in zip(row[index + 1 :], found, strict=True)]
        if not any(word is Verdict.FASTER for *_, word in later):
            return cell, later
    raise ValueError("a row has at least one cell")
