"""The one look of all tables that the listings print."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

MANY = 500  # rows; rich takes a millisecond for each, and nobody reads so many in colour


def make_table(*headings: str) -> Table:
    """Nothing is cut off where the terminal is narrow: cells are broken over lines, except the first, a name to be copied."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, no_wrap=number == 0, overflow="ignore" if number == 0 else "fold")
    return table


def print_rows(out: Console, headings: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    """A table of the trials of a sweep: as `make_table`; of more than MANY rows as plain lines, whatever the terminal's width."""
    if len(rows) <= MANY:
        table = make_table(*headings)
        for row in rows:
            table.add_row(*row)
        out.print(table)
        return
    lines = [list(headings), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    out.file.write(text + "\n")
