"""The comparison table: rows are devices and models, columns the suite's axis, cells a rate, its interval and its speed-up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.config.scalar_text import table_text
from experiments.metric import Kind, Metric, Scale
from experiments.metrics import metric_of
from experiments.parameters import MOST_SAMPLES
from experiments.spec.schema import Suite
from experiments.stats.loss_parity import ParityStatus
from experiments.stats.verdict import Verdict
from experiments.trial import Scalar, label
from tasks.analysis.cell import Cell
from tasks.analysis.compare_cells import in_currency, layout
from tasks.analysis.judge_cells import OF_MANY
from tasks.analysis.trial_row import TrialRow
from tasks.report.levels import level_text
from tasks.report.marks import Mark, in_order, marks_of, rounds_of_ratio, why_open
from tasks.report.settling import settling_notes
from tasks.report.shown import ShownCell, ShownTable
from tasks.report.text_format import OUTCOMES, change_text, quantity, spread
from tasks.report.value_order import ordered_values
from tasks.sweep.store import Plan

_SAID = {"compilation": "compilation (cold or from the cache)"}  # of the environment; a parameter's name says enough
_SHORT_NOTE = 40  # characters; shorter ones are read sooner where they are than below the table
_LESS_ROUNDS = " It leaves out what rounds and a drift did to both, so it may differ from what their values give."


@dataclass(frozen=True)
class TextTable:
    """A table of text. The first `names` columns name the row; the words of column `verdicts` are verdicts, which the page colours."""

    kind: ClassVar[str] = "table"
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1
    numeric: bool = False
    verdicts: int | None = None


@dataclass(frozen=True)
class TableCell:
    """One cell of the table as text. `value` or `outcome` is set, never both."""

    cell: Cell | None = None
    value: str = ""
    plus_minus: str = ""
    speedup: str = ""  # x1.17 (1.15–1.19), or "baseline"
    marks: Sequence[Mark] = ()  # of the speed-up
    outcome: str = ""
    reason: str = ""
    notes: Sequence[str] = ()
    beside: Sequence[tuple[Metric, float]] = ()  # further metrics, which are not compared, and their values

    def shown(self) -> ShownCell:
        """For a terminal."""
        if self.outcome:
            return ShownCell(style="dim" if self.outcome == "to do" else "yellow", parts=[(self.outcome, "")])
        parts = [(f"{self.value} {self.plus_minus}".strip(), ""), *((f", {text}", "not bold") for text in self.further)]
        if self.change:
            parts += [("  ", ""), (self.change, "strike not bold" if self.struck else f"not bold {self._colour}")]
            parts += [("".join(f" {mark.sign}" for mark in self.marks), "not bold dim")] if self.marks else []
        return ShownCell(style="bold", parts=[(text, style) for text, style in parts if text])

    @property
    def further(self) -> list[str]:
        """The further metrics in words: `MFU 45.1 %`; without a unit that the label says, as of `tokens/s per device`."""
        texts = [(metric, quantity(value, metric)) for metric, value in self.beside]
        return [f"{one.label} {text.removesuffix(f' {one.unit}') if one.unit in one.label.split() else text}" for one, text in texts]

    @property
    def _colour(self) -> str:
        if self.marks or self.cell is None or self.cell.verdict is None:
            return "dim"
        return "green" if self.cell.verdict is Verdict.FASTER else "red"

    @property
    def change(self) -> str:
        """The speed-up with its interval; empty for a baseline."""
        return self.speedup if self.cell is not None and self.cell.speedup is not None else ""

    @property
    def words(self) -> str:
        """The marks in words: `undecided, unproven`."""
        return ", ".join(self.marks)

    @property
    def verdict(self) -> str:
        """The marks in words, or the verdict where there are none: `faster`; empty for a cell that was compared with nothing."""
        return self.words or (str(self.cell.verdict) if self.change and self.cell is not None and self.cell.verdict else "")

    @property
    def bare(self) -> str:
        """The value without a unit that the table's title says."""
        unit = self.cell.metric.unit if self.cell is not None else ""
        return self.value.removesuffix(f" {unit}") if unit else self.value

    @property
    def all_notes(self) -> list[str]:
        """What stands below the value, or below how the cell ended."""
        return ([self.reason] if self.reason else []) if self.outcome else list(self.notes)

    @property
    def struck(self) -> bool:
        """Whether the speed-up is crossed out."""
        return Mark.STRUCK in self.marks


@dataclass(frozen=True)
class ComparisonTable:
    """`rows` pairs the values of the row axes with the cells below `columns`."""

    kind: ClassVar[str] = "comparison"
    title: str
    row_axes: Sequence[str]
    column_axes: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[tuple[Sequence[str], Sequence[TableCell]]]
    ratio: str = "x is the speed-up over"  # what a cell's comparison is; `the baseline` follows
    why_undecided: str | None = None  # of all that is undecided alike
    level: str = "95 %"  # the confidence of the intervals of ratios: see levels.py

    @property
    def about(self) -> str:
        """What stands above the table: its title, and what the figures in a cell are."""
        return " ".join(part for part in (f"{self.title}." if self.title else "", self.reading) if part)

    @property
    def reading(self) -> str:
        """What a value is where its name does not tell, and what the figures beside it are; empty where there is nothing to say."""
        places = [place for _, row in self.rows for place in row]
        plus = ["± is half the 95 % interval"] if any(place.plus_minus.startswith("±") for place in places) else []
        compared = [place.cell.speedup for place in places if place.change and place.cell and place.cell.speedup]
        known = any(math.isfinite(ratio.se) for ratio in compared)
        ratio = [f"{self.ratio} the baseline{f', with its interval in brackets: {self.level}' if known else ''}"] if compared else []
        own = dict.fromkeys(place.cell.metric for place in places if place.cell and place.value and place.cell.metric.meaning)
        said = "; ".join([*(f"{one.label[:1].upper()}{one.label[1:]} is {one.meaning}" for one in own), *plus, *self._beside, *ratio])
        return f"{said}.{_LESS_ROUNDS if known else ''}" if said else ""

    @property
    def _beside(self) -> list[str]:
        """What each further metric in the cells is: `peak memory is the mean of repeats`."""
        shown = dict.fromkeys(metric for _, row in self.rows for place in row for metric, _ in place.beside)
        return [f"{one.label} is {f'{one.meaning} (mean of repeats)' if one.meaning else 'the mean of repeats'}" for one in shown]

    @property
    def header(self) -> list[str]:
        return [*(axis.replace("_", " ") for axis in self.row_axes), *self.columns]

    @property
    def telling_axes(self) -> list[int]:
        """The places of the row axes in which rows differ, else of the first: what all cells have in common is told above the table."""
        differ = [at for at in range(len(self.row_axes)) if len({names[at] for names, _ in self.rows}) > 1]
        return differ or [0][: len(self.row_axes)]

    @property
    def row_labels(self) -> list[str]:
        """The name of each row by the axes in which the sweep's cells differ: `bf16 · compile none`; empty where there is but one row."""
        told = [_told_of([place.cell for place in places if place.cell is not None]) for _, places in self.rows]
        return [" · ".join(labels[axis] for axis in self.row_axes if axis in labels) for labels in told]

    @property
    def varied_rows(self) -> list[str]:
        """The axes that `row_labels` name."""
        varied = {axis for _, places in self.rows for place in places if place.cell is not None for axis in place.cell.varied}
        return [axis.replace("_", " ") for axis in self.row_axes if axis in varied]

    def row_cell(self, row: int) -> Cell:
        """A cell of the row: all have its values of the row axes."""
        return next(place.cell for place in self.rows[row][1] if place.cell is not None)

    def column_cell(self, column: int) -> Cell:
        """A cell of the column: all have its value of the column axis."""
        cells = (places[column].cell for _, places in self.rows)
        return next(cell for cell in cells if cell is not None)

    @property
    def fullest_first(self) -> list[int]:
        """The rows' places, those with the most cells first: a matrix with holes does not open on them."""
        filled = [sum(place.cell is not None for place in places) for _, places in self.rows]
        return sorted(range(len(filled)), key=lambda row: -filled[row])

    @property
    def footnotes(self) -> list[str]:
        """The notes that a page has once below the table, in the order of its cells: long ones that would stand in several of them."""
        notes = Counter(note for row in self.fullest_first for place in self.rows[row][1] for note in place.all_notes)
        return [note for note, count in notes.items() if count > 1 and len(note) > _SHORT_NOTE]

    @property
    def marks(self) -> list[Mark]:
        """The marks that the table uses, to be explained under it."""
        return in_order(mark for _, cells in self.rows for cell in cells for mark in cell.marks)

    @property
    def legend(self) -> str:
        """What the words beside the speed-ups mean; empty where there are none."""
        return "; ".join(f"{mark}: {self._meaning(mark)}" for mark in self.marks)

    @property
    def signs(self) -> str:
        """The same of the terminal's signs, and of which rounds a speed-up is that is not the ratio of the values beside it."""
        places = [place for _, row in self.rows for place in row if place.cell is not None and place.change]
        of_rounds = [f"{place.cell.short} {place.speedup}: {said}" for place in places if place.cell and (said := _of_rounds(place.cell))]
        return "; ".join([*(f"{mark.sign} {mark}: {self._meaning(mark)}" for mark in self.marks), *of_rounds])

    def _meaning(self, mark: Mark) -> str:
        why = f" ({self.why_undecided})" if mark is Mark.UNDECIDED and self.why_undecided else ""
        return f"{mark.meaning}{why}"

    def shown(self) -> ShownTable:
        """For a terminal."""
        rows = [(list(names), [cell.shown() for cell in cells]) for names, cells in self.rows]
        return ShownTable(title=self.title, row_axes=list(self.row_axes), columns=list(self.columns), rows=rows, signs=self.signs)


def table_of_plan(cells: Sequence[Cell], plan: Plan) -> ComparisonTable:
    """The table of a sweep's judged cells."""
    return replace(build_table(cells, plan.suite), level=level_text(cells, plan))


def build_table(cells: Sequence[Cell], suite: Suite) -> ComparisonTable:
    """Lay out cells by the suite's `report`; axes that it does not name and that vary become rows."""
    row_axes, column_axes = layout(cells, suite)
    columns = _in_order(tuple(cell.axes.get(axis) for axis in column_axes) for cell in cells)
    rows: dict[tuple[Scalar, ...], dict[tuple[Scalar, ...], Cell]] = {}
    for cell in cells:
        name = tuple(cell.axes.get(axis) for axis in row_axes)
        rows.setdefault(name, {})[tuple(cell.axes.get(axis) for axis in column_axes)] = cell
    metric = cells[0].metric if cells else None
    parity = {cell.parity_note for cell in cells if cell.measured}
    shared_note = parity.pop() if len(parity) == 1 and len(cells) > 1 else None  # of all cells alike: the report says it once
    reasons = {cell.why_undecided for cell in cells if cell.why_undecided} - {OF_MANY}  # which has a mark of its own
    why = reasons.pop() if len(reasons) == 1 and len(cells) > 1 else None
    heads = [" · ".join(label(axis, value) for axis, value in zip(column_axes, values, strict=True)) for values in columns]
    return ComparisonTable(
        suite.report.title or (_title(metric) if metric else ""),
        row_axes,
        column_axes,
        heads if column_axes else [metric.name] if metric else [],
        [
            (
                _row_texts(row_axes, name, list(rows[name].values())),
                [
                    table_cell(row.get(values), shared_note=shared_note, shared_why=why, beside=suite.report.shown_beside)
                    for values in columns
                ],
            )
            for name, row in ((name, rows[name]) for name in _in_order(rows))
        ],
        _comparison(metric) if metric else "x is the speed-up over",
        why,
    )


def _told_of(cells: Sequence[Cell]) -> Mapping[str, str]:
    """Axis -> label of what any of these cells is told by."""
    return {axis: text for cell in cells for axis, text in cell.told.items()}


def _row_texts(row_axes: Sequence[str], values: Sequence[Scalar], cells: Sequence[Cell]) -> list[str]:
    """The row's values of its axes; a dash where the value has no effect in any of its cells."""
    idle = {axis for axis in row_axes if all(axis in cell.axes and not cell.trial.axis_labels((axis,)) for cell in cells)}
    return ["–" if axis in idle else table_text(value) for axis, value in zip(row_axes, values, strict=True)]


def _in_order(names: Iterable[tuple[Scalar, ...]]) -> list[tuple[Scalar, ...]]:
    """Each once: by the first axis' value, then by the second's."""
    each = list(dict.fromkeys(names))
    places = [{repr(value): place for place, value in enumerate(ordered_values(values))} for values in zip(*each, strict=True)]
    return sorted(each, key=lambda values: [place[repr(value)] for place, value in zip(places, values, strict=True)])


def _comparison(metric: Metric) -> str:
    """What stands beside a value, before `the baseline`."""
    if metric.scale is not Scale.LOG:
        return "the signed number is the difference from"
    if metric.lower_is_better:
        return "x is how many times lower it is than"
    return "x is the speed-up over" if metric.kind is Kind.RATE else "x is how many times higher it is than"


def _title(metric: Metric) -> str:
    name = metric.label
    return f"{name[:1].upper()}{name[1:]}" + (f", {metric.unit}" if metric.unit and metric.unit not in name else "")


def _how_failed(rows: Sequence[TrialRow]) -> str:
    """`crashed (a.py:1 in b: ValueError: c), hang`: each outcome once, with what its first trial that gives a reason says."""
    reasons: dict[str, str] = {}
    for row in rows:
        reasons[row.outcome] = reasons.get(row.outcome) or row.reason or ""
    return ", ".join(f"{outcome} ({reason})" if reason else outcome for outcome, reason in sorted(reasons.items()))


def table_cell(
    cell: Cell | None, *, shared_note: str | None = None, shared_why: str | None = None, beside: Sequence[str] = ()
) -> TableCell:
    """What one place of the table says; empty where the matrix has no such cell.

    `shared_note`, `shared_why`: a parity note, and why a cell is undecided, that are said once for all cells and not here.
    `beside`: further metrics to show; one that no repeat knows is left out.
    """
    if cell is None:
        return TableCell()
    if cell.estimate is None:
        return TableCell(cell, outcome=OUTCOMES.get(cell.outcome, cell.outcome), reason=cell.reason or "")
    failed = [row for row in cell.rows if row.outcome != "ok"]
    notes = [f"{len(failed)} of {len(cell.rows)} repeats: {_how_failed(failed)}"] if failed else []
    if cell.metric.depends_on_node:
        notes += settling_notes(cell.measured)
    if found := _largest_batch(cell):
        notes.append(found)
    plus = spread(cell.estimate, cell.metric)
    if cell.other_work:
        notes.append(f"not compared with the baseline, which does other work: {cell.other_work}")
    if (why := why_open(cell)) and why != f"undecided: {shared_why}":
        notes.append(why)
    if said := _of_rounds(cell):
        notes.append(f"its comparison is {said}")
    if cell.differs:
        notes.append(f"also differs from its baseline: {', '.join(_SAID.get(name, name) for name in cell.differs)}")
    if cell.parity_note and cell.parity_note != shared_note:
        notes.append(f"loss parity {_parity(cell)}")
    if cell.emulated:
        notes.append("emulated, not a measurement")
    return TableCell(
        cell,
        quantity(cell.estimate.value, cell.metric),
        plus,
        "baseline" if cell.is_compared_with else _change(cell),
        marks_of(cell),
        notes=notes,
        beside=[(in_currency(metric_of(name), cell.rows), value) for name in beside if (value := cell.mean(name)) is not None],
    )


def _largest_batch(cell: Cell) -> str:
    """Which size the search of `batch_size: max` came to, of each device; of repeats that came to several the least and the most. That it
    is where the search ends, and no limit of the device."""
    if cell.trial.parameters.get("batch_size") != "max":
        return ""
    sizes = sorted({int(size) for row in cell.measured if (size := row.summary.get("batch_size")) is not None})
    told = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}" if sizes else ""
    ends = ", the most that the search tries: a larger one may fit" if sizes and sizes[-1] >= MOST_SAMPLES else ""
    return f"batch size max is {told} for each device{ends}" if told else ""


def _of_rounds(cell: Cell) -> str:
    """What the speed-up is of, where it is not the ratio of the two values; else empty."""
    rounds = rounds_of_ratio(cell)
    return f"of {rounds}, measured on both sides; each value is of all rounds of its own" if rounds else ""


def _parity(cell: Cell) -> str:
    """What is shown of the cell's loss parity. The figures of what was proven stand in the section on it."""
    assert cell.parity_note is not None
    proven = cell.parity is not None and cell.parity.status is ParityStatus.PROVEN
    return str(ParityStatus.PROVEN) if proven else cell.parity_note


def _change(cell: Cell) -> str:
    """The speed-up over the baseline with its interval; empty where the cell has none."""
    return change_text(cell.speedup, cell.metric) if cell.speedup else ""
