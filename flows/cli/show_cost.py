"""What the terminal says of the cost and the energy of a million samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from flows.cli.tables import make_table

if TYPE_CHECKING:
    from tasks.analysis.cell import Cell
    from tasks.report.comparison_table import TextTable


def print_cost(out: Console, cells: Sequence[Cell]) -> None:
    """The report's table of costs, and the prices that they are made of; nothing where neither prices nor energy are known."""
    from tasks.report.sections.cost import cost_table, price_lines

    print_costs(out, cost_table(cells))
    for line in price_lines(cells):
        out.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)


def print_costs(out: Console, costs: TextTable) -> None:
    """A table of costs; nothing where it has no row."""
    if not costs.rows:
        return
    table = make_table(*costs.header)
    for row in costs.rows:
        table.add_row(*map(Text, row))
    out.print(table)
