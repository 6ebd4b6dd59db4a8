"""Section: the table of a published document, completed: its accelerators and batches as columns, its values above ours, with speed-ups.

Speed-ups are over the published column that the suite's `report.published` names, as in the document; a throughput's are per device. Ours
stand there of the models and numbers of devices that the document has, and have a speed-up over a column of their own number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.literature.reader import OURS, LiteratureValue, literature_for, same_device
from experiments.metric import Metric
from experiments.spec.schema import PublishedColumn, Suite
from experiments.trial import label
from tasks.analysis.cell import Cell
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.text_format import times

ABOUT = (
    "Columns are accelerators, their number and the batch of each. Ours are those of a published model on as many devices. "
    "Software, date and sometimes more differ between their rows and ours: see what differs, below."
)
_OF_COLUMNS = ("pool", "devices", "batch_size")  # axes that the columns say


def section(source: ReportSource) -> Section | None:
    table = published_table(source.cells, source.sweep.plan.suite)
    section = table_section("literature_table", "The published table, and ours", table, ABOUT)
    return section and replace(section, folded=True)


@dataclass(frozen=True)
class Column:
    """What a column's values were measured on."""

    accelerator: str
    devices: int | None
    batch: int | None

    def __str__(self) -> str:
        devices = "" if self.devices in (None, 1) else f" x{self.devices}"
        return f"{self.accelerator}{devices}" + ("" if self.batch is None else f", batch {self.batch}")


def published_table(cells: Sequence[Cell], suite: Suite) -> TextTable:
    """Empty where the suite names no published column to compare with, or nobody published its metric."""
    reference = suite.report.published
    if not reference or not cells:
        return TextTable([""], [])
    metric = cells[0].metric
    entries = [entry for entry in literature_for(cells[0].trial.workload, metric=None) if OURS.get(entry.metric, ("",))[0] == metric.name]
    base = next((entry for entry in entries if _matches(entry, reference)), None)
    if base is None:
        return TextTable([""], [])
    entries = [entry for entry in entries if entry.model == base.model]
    unit, scale = base.unit, OURS[base.metric][1]
    theirs = {_column_of(entry): entry.value for entry in reversed(entries)}  # of two for one column the first stays
    ours: dict[str, dict[Column, float]] = {}
    varied = [axis for axis in cells[0].axes if axis not in _OF_COLUMNS and len({repr(cell.axes.get(axis)) for cell in cells}) > 1]
    for cell in cells:
        if cell.estimate is None or cell.emulated or not any(entry.may_stand_beside(cell.trial.parameters) for entry in entries):
            continue
        precision = cell.trial.parameters.get("precision")
        words = [] if precision is None else [str(precision)]
        words += [label(axis, cell.axes.get(axis)) for axis in varied if axis not in ("model", "precision")]
        name = " · ".join(["ours", *words])
        column = _column_of_ours(cell, entries)
        if column in ours.get(name, {}):  # two pools of one accelerator
            name = f"{name} · {cell.trial.pool}"
        ours.setdefault(name, {})[column] = cell.estimate.value / scale
    if not ours:
        return TextTable([""], [])
    columns = list(dict.fromkeys([*map(_column_of, entries), *(column for row in ours.values() for column in row)]))
    over = f"speed-up over {_column_of(base)}"
    rows = []
    for name, values in {"published": theirs, **ours}.items():
        rows.append([f"{name}, {unit}", *(_number(values.get(column)) for column in columns)])
        speedups = [_speedup(values.get(column), column, base, metric, published=name == "published") for column in columns]
        if any(speedup != "–" for speedup in speedups):
            rows.append([f"{name}, {over}", *speedups])
    return TextTable(["", *map(str, columns)], rows, numeric=True)


def _matches(entry: LiteratureValue, reference: PublishedColumn) -> bool:
    return entry.accelerator == reference.accelerator and reference.batch in (None, entry.batch)


def _column_of(entry: LiteratureValue) -> Column:
    return Column(entry.accelerator, entry.devices, entry.batch)


def _column_of_ours(cell: Cell, entries: Sequence[LiteratureValue]) -> Column:
    """The published column of the same accelerator, devices and batch, or one of our own."""
    device = next((str(row.environment["device_name"]) for row in cell.rows if row.environment.get("device_name")), cell.trial.device)
    known = next((entry.accelerator for entry in entries if same_device(entry.accelerator, device)), None)
    batch = cell.mean("batch_size") or cell.trial.parameters.get("batch_size")
    return Column(
        known or device, int(cell.trial.parameters.get("devices", 1)), None if isinstance(batch, str) or batch is None else int(batch)
    )


def _number(value: float | None) -> str:
    """As the documents write them: five digits at most, none that say nothing."""
    return "–" if value is None else f"{value:,.5g}"


def _speedup(value: float | None, column: Column, base: LiteratureValue, metric: Metric, *, published: bool) -> str:
    if value is None or value <= 0 or not (published or column.devices == base.devices):
        return "–"
    if metric.lower_is_better:
        return times(base.value / value)
    devices = (column.devices or 1) / (base.devices or 1) if metric.name == "throughput" else 1
    return times(value / base.value / devices)
