"""What the terminal says of the cost and the energy of a million samples."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from flows.cli.tables import make_table


def print_costs(out: Console, header: Sequence[str], rows: Sequence[Sequence[str]], prices: Sequence[str] = ()) -> None:
    """A table of costs, nothing where it has no row, and the prices that they are made of."""
    if rows:
        table = make_table(*header)
        for row in rows:
            table.add_row(*map(Text, row))
        out.print(table)
    for line in prices:
        out.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)
