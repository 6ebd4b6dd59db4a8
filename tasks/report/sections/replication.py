"""Section: where a measurement on another node of the kind will land, for cells that several nodes have measured."""

from __future__ import annotations

from experiments.metric import Kind, Metric
from experiments.stats.replication import Replication
from tasks.analysis.cell import Cell
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.text_format import number, quantity


def section(source: ReportSource) -> Section | None:
    elsewhere = source.known.elsewhere
    rows = [_row(cell, elsewhere[cell.trial.cell]) for cell in source.cells if cell.measured and cell.trial.cell in elsewhere]
    table = TextTable(["cell", "here", "another node of the kind will land in (95 %)", "from"], rows)
    text = "The range for the mean of another node's trials, from how far the nodes that have measured these cells lie apart."
    return table_section("replication", "On another node", table, text)


def _row(cell: Cell, range_: Replication) -> list[str]:
    here = quantity(cell.estimate.value, cell.metric) if cell.estimate else "–"
    device = cell.measured[0].environment.get("device_name") or cell.trial.pool
    return [cell.short, here, f"another {device} node: {range_text(range_, cell.metric)}", f"{range_.hosts} hosts"]


def range_text(range_: Replication, metric: Metric) -> str:
    """238.1–254.0 samples/s; the unit twice where it is not written behind the number alone."""
    if metric.kind in (Kind.SECONDS, Kind.BYTES, Kind.SHARE):
        return f"{quantity(range_.low, metric)}–{quantity(range_.high, metric)}"
    return f"{number(range_.low)}–{quantity(range_.high, metric)}"
