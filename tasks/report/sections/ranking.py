"""Section: the cells from the best value down, each with its interval as a bar, before the table of the whole matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from experiments.metric import Direction
from experiments.stats.verdict import Verdict
from tasks.analysis.cell import Cell
from tasks.analysis.same_work import groups_to_rank
from tasks.report.cell_names import without_labels
from tasks.report.marks import Mark, marks_of, why_open
from tasks.report.section import RankedCell, Ranking, ReportSource, Section
from tasks.report.text_format import change_text, quantity, spread

NAME = "ranking"
TOP = 10  # shown at once; the page folds the rest, Markdown leaves it to the table
MOST = 500  # of one group: more make a page that no one reads
_ROOM = 0.04  # of the bars' width, beyond both ends: half of a dot on a narrow screen
_MOST_OF_IT = 70.0  # percent of the bars: where the first cells take as much, they need no closer look
TEXT = "The order is that of the values: only a verdict says that a cell is faster."
BARS = "Bars are 95 % intervals, the dot is the value, the dashed line its baseline."  # the page alone has bars
NO_BARS = "The dot is the value, the dashed line its baseline; no interval is known."
CUT = "An arrow at an end of a bar: the interval goes on beyond the axis."


def section(source: ReportSource) -> Section | None:
    cells = [cell for cell in source.cells if cell.estimate is not None and cell.metric.direction is not Direction.NEITHER]
    if source.sweep.plan.aa or source.sweep.plan.ab:
        return None  # arms, and sides: nothing to rank
    rankings = [ranking_of(group, work) for work, group in groups_to_rank(cells).items() if len(group) > 1]
    title = "Cells from the best down"
    cut = any(any((*one.beyond, *one.beyond_top)) for ranking in rankings for one in ranking.cells)
    known = any(one.bar[0] is not None for ranking in rankings for one in ranking.cells)
    page_text = " ".join([BARS if known else NO_BARS, *([CUT] if cut else []), TEXT])
    return Section(NAME, title, rankings, TEXT, page_text) if rankings else None


def ranking_of(cells: Sequence[Cell], work: str = "") -> Ranking:
    """Cells with a value, of one group of work."""
    ordered = sorted(cells, key=_value, reverse=not cells[0].metric.lower_is_better)
    ordered.sort(key=lambda cell: cell.struck)  # never before what may win
    shown = ordered[:MOST]
    low, high = _ends(shown)
    first_low, first_high = first_ends = _ends(shown[:TOP])

    def at(value: float) -> float:
        return round(100 * min(1.0, max(0.0, (value - low) / (high - low))), 2)

    ranked = [
        RankedCell(
            place,
            cell,
            without_labels(cell.short, work),
            quantity(_value(cell), cell.metric),
            spread(cell.estimate, cell.metric) if cell.estimate else "",
            _change(cell),
            _words(cell),
            cell.verdict in (Verdict.FASTER, Verdict.SLOWER) and not marks_of(cell),
            _bar(cell, at),
            at(_value(cell.baseline)) if cell.baseline is not None and cell.baseline.estimate is not None else None,
            _hover(cell),
            _beyond(cell, (low, high)),
            _beyond(cell, first_ends) if place <= TOP else (False, False),
        )
        for place, cell in enumerate(shown, 1)
    ]
    metric = cells[0].metric
    made = Ranking(work, ranked, (quantity(low, metric), quantity(high, metric)))
    top, rest = (at(first_low), at(first_high)), len(ordered) - len(shown)
    if len(shown) <= TOP or top[1] - top[0] > _MOST_OF_IT:
        return replace(made, rest=rest)
    return replace(made, top=top, top_ends=(quantity(first_low, metric), quantity(first_high, metric)), rest=rest)


def _value(cell: Cell) -> float:
    assert cell.estimate is not None
    return cell.estimate.value


def _ends(cells: Sequence[Cell]) -> tuple[float, float]:
    """The values at both ends of the bars. Intervals enter at most as far beyond the values as the values lie apart."""
    values = [_value(cell) for cell in cells]
    least, most = min(values), max(values)
    reach = max(most - least, 0.05 * max(abs(most), abs(least))) or 1.0
    bounds = [(cell.estimate.low, cell.estimate.high) for cell in cells if cell.estimate and math.isfinite(cell.estimate.se)]
    low = min([least, *(max(bound, least - reach) for bound, _ in bounds)])
    high = max([most, *(min(bound, most + reach) for _, bound in bounds)])
    room = _ROOM * ((high - low) or reach)
    return low - room, high + room


def _bar(cell: Cell, at: Callable[[float], float]) -> tuple[float | None, float, float | None]:
    estimate = cell.estimate
    assert estimate is not None
    if not math.isfinite(estimate.se):
        return None, at(estimate.value), None
    return at(estimate.low), at(estimate.value), at(estimate.high)


def _beyond(cell: Cell, ends: tuple[float, float]) -> tuple[bool, bool]:
    """Whether the cell's interval goes on beyond each of these ends."""
    estimate = cell.estimate
    assert estimate is not None
    return (estimate.low < ends[0], estimate.high > ends[1]) if math.isfinite(estimate.se) else (False, False)


def _change(cell: Cell) -> str:
    if cell.is_compared_with:
        return "baseline"
    return change_text(cell.speedup, cell.metric) if cell.speedup else ""


def _words(cell: Cell) -> str:
    """The verdict in words, or the marks that say why none may be claimed."""
    marks = marks_of(cell)
    if marks or cell.verdict is None:
        return ", ".join(marks)
    return str(cell.verdict)


def _hover(cell: Cell) -> str:
    """`581.5 samples/s, 95 % interval 574.1 to 588.9; trials 580.1, 582.4; undecided: too wide an interval`."""
    estimate, metric = cell.estimate, cell.metric
    assert estimate is not None
    known = math.isfinite(estimate.se)
    ends = [quantity(end, metric).removesuffix(f" {metric.unit}") for end in (estimate.low, estimate.high)]
    said = [f", 95 % interval {ends[0]} to {ends[1]}" if known else ", no interval known"]
    if len(cell.values) > 1:
        said.append(f"; trials {', '.join(quantity(value, metric).removesuffix(f' {metric.unit}') for value in cell.values)}")
    why = Mark.OF_MANY.meaning if Mark.OF_MANY in marks_of(cell) else why_open(cell)
    said += [f"; {why}"] if why else []
    said += [f"; {cell.parity_note}"] if cell.struck and cell.parity_note else []
    return f"{quantity(estimate.value, metric)}{''.join(said)}"
