"""What tables of several sections need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tasks.report.comparison_table import TextTable


def without_empty(table: TextTable) -> TextTable:
    """Leave out columns that hold nothing but dashes."""
    keep = [i for i in range(len(table.header)) if i < table.names or any(row[i] != "–" for row in table.rows)]
    return replace(table, header=[table.header[i] for i in keep], rows=[[row[i] for i in keep] for row in table.rows])


def turned(table: TextTable, title: str, most: int) -> list[TextTable]:
    """The table with its rows as columns, in tables of at most so many of them each. `title` stands above what were its column names.

    For tables of many figures of few things: a screen has room for more rows than columns.
    """
    parts = [table.rows[start : start + most] for start in range(0, len(table.rows), most)]
    return [_turned(table, title, part) for part in parts]


def _turned(table: TextTable, title: str, rows: Sequence[Sequence[str]]) -> TextTable:
    names = [" · ".join(row[: table.names]) for row in rows]
    lines = [[name, *(row[at] for row in rows)] for at, name in enumerate(table.header) if at >= table.names]
    return TextTable([title, *names], lines, numeric=table.numeric)
