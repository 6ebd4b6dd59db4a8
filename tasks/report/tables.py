"""What tables of several sections need."""

from __future__ import annotations

from dataclasses import replace

from tasks.report.comparison_table import TextTable


def without_empty(table: TextTable) -> TextTable:
    """Leave out columns that hold nothing but dashes."""
    keep = [i for i in range(len(table.header)) if i < table.names or any(row[i] != "–" for row in table.rows)]
    return replace(table, header=[table.header[i] for i in keep], rows=[[row[i] for i in keep] for row in table.rows])
