"""Section: how many loader processes or threads are enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.metric import Direction, Metric
from experiments.stats.verdict import Verdict
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import Comparison, judge_pairs
from tasks.report.answer import superlative
from tasks.report.section import Bullets, ReportSource, Section
from tasks.report.text_format import OUTCOMES, change_text, listed, percent

WORKERS, LOADER = "dataloader_workers", "loader"
PROCESSES = "processes"  # of LOADER: what others are compared with


def section(source: ReportSource) -> Section | None:
    rows = saturation(source.cells)
    lines = [*(row.sentence for row in rows), *loaders_compared(rows)]
    if not lines:
        return None
    # a single sentence stands beside the winner at the page's head
    return Section("data_loading", "Data loading", [Bullets(lines)], part_of_previous=True, on_page=len(lines) > 1)


@dataclass(frozen=True)
class Saturation:
    """The fewest loader processes or threads that saturate the device, for cells that differ in nothing else.

    `cells`: by their number; `enough`: the one that has so few; `rest`: what all of them are, without the kind of `loader`.
    """

    cells: Sequence[Cell]
    enough: Cell
    loader: str | None
    rest: tuple[object, ...]
    sentence: str


def saturation(cells: Sequence[Cell], of: Cell | None = None) -> list[Saturation]:
    """One for each row that varies them; none of a metric that is better neither high nor low. `of`: its row alone.

    A cell that loads in its training process has no loader of either kind, so it begins the row of each.
    """
    groups: dict[tuple[tuple[object, ...], str | None], list[Cell]] = {}
    lost: dict[tuple[tuple[object, ...], str | None], list[Cell]] = {}  # that have no value
    for cell in cells:
        if cell.metric.direction is not Direction.NEITHER and isinstance(cell.axes.get(WORKERS), int):
            kept = groups if cell.estimate else lost
            kept.setdefault((_rest(cell), _loader(cell.axes)), []).append(cell)
    alone = {rest: [cell for cell in group if _workers(cell) == 0] for (rest, loader), group in groups.items() if loader == PROCESSES}
    found = []
    for (rest, loader), group in groups.items():
        row = sorted(group if loader in (None, PROCESSES) else [*alone.get(rest, []), *group], key=_workers)
        if len(row) > 1 and (of is None or of in group):
            enough, sentence = _saturation(row, lost.get((rest, loader), ()))
            found.append(Saturation(row, enough, loader, rest, sentence))
    return found


def loaders_compared(rows: Sequence[Saturation]) -> list[str]:
    """Where a sweep varies who loads: each other kind against processes, both with as many as are enough, of each at least one."""
    processes = {row.rest: row.enough for row in rows if row.loader == PROCESSES}
    others = [row for row in rows if row.loader not in (None, PROCESSES) and row.rest in processes and _workers(row.enough)]
    pairs = [(row.enough, processes[row.rest]) for row in others]
    return [
        f"With as many as are enough, {cell.short} is {_AGAINST[found.verdict]} {other.short}: {_against(found, cell.metric)}."
        for (cell, other), found in zip(pairs, judge_pairs(pairs), strict=True)
    ]


_AGAINST: Mapping[Verdict, str] = {
    Verdict.FASTER: "better than",
    Verdict.SLOWER: "worse than",
    Verdict.SAME: "the same as",
    Verdict.UNDECIDED: "undecided against",
}


def _rest(cell: Cell) -> tuple[object, ...]:
    axes = ((axis, repr(value)) for axis, value in cell.axes.items() if axis not in (WORKERS, LOADER))
    return (*axes, repr(cell.work))


def _loader(axes: Mapping[str, object]) -> str | None:
    return str(axes[LOADER]) if LOADER in axes else None


def _workers(cell: Cell) -> int:
    return int(cell.axes[WORKERS] or 0)


def _mp(cell: Cell) -> str:
    return f"MP-{cell.axes[WORKERS]}"


def _saturation(row: Sequence[Cell], lost: Sequence[Cell]) -> tuple[Cell, str]:
    """Which cell has as many as are enough, and the sentence about it. `row` is sorted by workers; the last tells its loader. `lost`: those
    without a value."""
    cell, later = _enough(row)
    return cell, _sentence(row, cell, later, [one for one in sorted(lost, key=_workers) if _workers(one) > _workers(cell)])


def _sentence(row: Sequence[Cell], cell: Cell, later: Sequence[tuple[Cell, Comparison]], lost: Sequence[Cell]) -> str:
    where = " · ".join(part for part in row[-1].short.split(" · ") if part != _mp(row[-1]))
    place = f"{where}: " if where else ""
    waits = cell.mean("data_wait_share")
    wait = f"; at {_mp(cell)} the device waits for the host {percent(waits)} of the step" if waits is not None else ""
    gain = f"{_against(judge_pairs([(cell, row[0])])[0], cell.metric)} over {_mp(row[0])}" if cell is not row[0] else ""
    ended = listed([f"{_mp(one)} {OUTCOMES.get(one.outcome, one.outcome)}" for one in lost])
    if not later:
        larger = f"no larger count has a value: {ended}" if lost else "no larger count was tried"
        return f"{place}{_mp(cell)} is the {superlative(cell.metric)} measured ({gain}), and {larger}{wait}."
    wait = f"; without a value: {ended}{wait}" if lost else wait
    if cell is row[0] and all(found.verdict is Verdict.UNDECIDED for _, found in later):
        names = listed([f"{_mp(other)} {_against(found, cell.metric)}" for other, found in later])
        undecided = "undecided" if place else "Undecided"
        return f"{place}{undecided} how many are enough: over {_mp(cell)}, {names}{wait}."
    parts = []
    for word, (one, many) in {**_BEYOND, Verdict.UNDECIDED: (f"over {_mp(cell)}",) * 2}.items():
        of_word = [(other, found) for other, found in later if found.verdict is word]
        said = [_mp(o) if word is Verdict.SAME else f"{_mp(o)} {_against(found, cell.metric)}" for o, found in of_word]
        if said:
            parts.append(f"{listed(said)} {one if len(said) == 1 else many}")
    doubt = any(found.verdict is Verdict.UNDECIDED for _, found in later)
    whether = f"{'undecided' if place else 'Undecided'} whether {_mp(cell)}" if doubt else _mp(cell)
    return f"{place}{whether} is enough{f': {gain}' if gain else ''}; {'; '.join(parts)}{wait}."


def _against(found: Comparison, metric: Metric) -> str:
    return change_text(found.ratio, metric)


# verdict on larger counts, and how it reads of one count and of several
_BEYOND: Mapping[Verdict, tuple[str, str]] = {Verdict.SAME: ("adds nothing", "add nothing"), Verdict.SLOWER: ("is slower", "are slower")}


def _enough(row: Sequence[Cell]) -> tuple[Cell, list[tuple[Cell, Comparison]]]:
    """The cell with the fewest workers that no cell with more is shown to beat; and each with more, against it."""
    for index, cell in enumerate(row):
        later = row[index + 1 :]
        found = judge_pairs([(other, cell) for other in later])
        if not any(comparison.verdict is Verdict.FASTER for comparison in found):
            return cell, list(zip(later, found, strict=True))
    raise ValueError("a row has at least one cell")
