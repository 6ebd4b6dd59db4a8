"""The one look of all tables that the listings print."""

from __future__ import annotations

from rich.table import Table


def make_table(*headings: str) -> Table:
    """Nothing is cut off where the terminal is narrow: cells are broken over lines, except the first, a name to be copied."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, no_wrap=number == 0, overflow="ignore" if number == 0 else "fold")
    return table
