"""Section: metrics on held-out data before and after training."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.metric import Kind
from experiments.metrics import metric_of
from tasks.analysis.cell import Cell
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.tables import without_empty
from tasks.report.text_format import number, quantity


def section(source: ReportSource) -> Section | None:
    return table_section(
        "evaluation",
        "Before and after training",
        evaluation_table(source.cells),
        "On held-out data, outside the measured window.",
        "On held-out data, outside the measured window. Means over repeats: geometric, of shares and scores arithmetic.",
    )


def evaluation_table(cells: Sequence[Cell]) -> TextTable:
    """Held-out metrics before and after training, over repeats the mean that the comparison has (`Cell.middle`)."""
    names = dict.fromkeys(key for cell in cells for row in cell.rows for key in row.summary if key.startswith("eval_"))
    metrics = list(dict.fromkeys(name.removeprefix("eval_").rsplit("_", 1)[0] for name in names))
    known = [m for m in metrics if any(cell.mean(f"eval_{m}_{when}") is not None for cell in cells for when in ("before", "after"))]
    header = ["cell", *(f"{metric.replace('_', ' ')}, {when}" for metric in known for when in ("before", "after"))]
    values = [
        [cell.short, *(_evaluated(cell, f"eval_{metric}_{when}") for metric in known for when in ("before", "after"))]
        for cell in cells
        if cell.measured
    ]
    return without_empty(TextTable(header, values if known else [], numeric=True))


def _evaluated(cell: Cell, name: str) -> str:
    metric, value = metric_of(name), cell.middle(name)
    return number(value, 3) if metric.kind is Kind.NUMBER else quantity(value, metric)
