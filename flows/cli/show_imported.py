"""What `sweep import`, and `sweep list`, `show` and `report`, print of results that others measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.config.errors import UserError
from flows.cli.tables import print_rows
from tasks.imports.model import TITLES, Imported
from tasks.imports.store import list_imported, read_imported
from tasks.imports.text import NOT_OURS, headline, results_table

OF_OTHERS = "of others"  # in the column of states


def print_imported(out: Console, imported: Imported, page: Path) -> None:
    """The results, and whose they are."""
    out.print(f"{imported.sweep_id}: {headline(imported)}", highlight=False, markup=False, soft_wrap=True)
    table = results_table(imported)
    print_rows(out, table.header, table.rows)
    out.print(NOT_OURS, highlight=False, markup=False, soft_wrap=True)
    out.print(f"report: {page}", highlight=False, markup=False, soft_wrap=True)


def imported_rows() -> list[dict[str, Any]]:
    """One entry for each import, newest first, as `sweep list` has them."""
    rows: list[dict[str, Any]] = []
    for sweep_id in list_imported():
        try:
            imported = read_imported(sweep_id)
        except UserError as error:
            rows.append({"sweep_id": sweep_id, "state": "unreadable", "problem": str(error)})
            continue
        if imported is not None:
            own = {"measured_by": imported.measured_by, "origin": str(imported.origin), "results": len(imported.results)}
            rows.append({"sweep_id": sweep_id, "created_at": imported.imported_at, "state": OF_OTHERS, **own})
    return rows


def outcomes_of(row: Mapping[str, Any]) -> str:
    """In the column of outcomes: `3 results of MLPerf logs`."""
    return f"{row['results']} of {next(title for origin, title in TITLES.items() if origin == row['origin'])}"
