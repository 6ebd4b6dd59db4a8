"""Tables of trials: rich for a few, plain lines for many."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli import tables
from flows.cli.tables import MANY, print_rows


@pytest.mark.parametrize(("rows", "rich"), [(MANY, 1), (MANY + 1, 0)])
def test_long_tables_are_plain_lines(monkeypatch: pytest.MonkeyPatch, rows: int, rich: int) -> None:
    made: list[Table] = []
    make_table = tables.make_table
    monkeypatch.setattr(tables, "make_table", lambda *headings: made.append(make_table(*headings)) or made[-1])
    out = Console(file=io.StringIO(), width=40)
    print_rows(out, ["", "state"], [[str(number), Text("done", style="green")] for number in range(rows)])
    lines = out.file.getvalue().splitlines()
    assert len(made) == rich and [line.split() for line in lines[1:]] == [[str(number), "done"] for number in range(rows)]
    assert lines[0].split() == ["state"]


def test_columns_are_aligned_and_nothing_is_cut_off() -> None:
    out = Console(file=io.StringIO(), width=20)
    print_rows(out, ["trial", "reason"], [[f"trial {number}", "x" * 50] for number in range(MANY + 1)])
    lines = out.file.getvalue().splitlines()
    assert {line.index("x") for line in lines[1:]} == {lines[0].index("reason")} == {11}
    assert all(line.endswith("x" * 50) for line in lines[1:])
