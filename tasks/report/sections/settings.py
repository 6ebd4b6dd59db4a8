"""Section: what the values of an axis that only names settings stand for, such as the rungs of a ladder."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.analysis.cell import Cell
from tasks.analysis.named_settings import settings_rows
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section


def section(source: ReportSource) -> Section | None:
    table = settings_table(source.cells)
    return table_section("settings", f"What each {table.header[0]} sets", table, "The first in full; of the others what differs from it.")


def settings_table(cells: Sequence[Cell]) -> TextTable:
    axis, rows = settings_rows(cells)
    return TextTable([axis.replace("_", " "), "sets"], rows)
