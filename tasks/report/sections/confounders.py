"""Section: what differs between compared cells and is not an axis."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.analysis.cell import Cell
from tasks.analysis.confounders import confounders
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.text_format import listed


def section(source: ReportSource) -> Section | None:
    return table_section(
        "confounders",
        "Confounders",
        confounders_table(source.cells),
        "What differs between these cells and is not an axis.",
        "What differs between these cells and is not an axis: it may be part of any difference between them.",
    )


def confounders_table(cells: Sequence[Cell]) -> TextTable:
    """A row for each value of each confounder, with the cells that have it."""
    compared = [cell for cell in cells if cell.measured]
    rows = [[name, value, _who(members, compared)] for name, groups in confounders(compared) for value, members in groups]
    return TextTable(["differs", "value", "cells"], rows)


def _who(members: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """Some of the cells, in as few words as name them."""
    if len(members) == len(cells):
        return "every cell, in some of its repeats"
    pools = list(dict.fromkeys(cell.trial.pool for cell in members))
    if len(members) == sum(cell.trial.pool in pools for cell in cells) > 1:
        return f"all cells of {listed([f'pool {pool}' for pool in pools])}"
    rest = len(cells) - len(members)
    return f"the other {len(members)} cells" if len(members) > 4 and rest < len(members) else listed([cell.short for cell in members], 8)
