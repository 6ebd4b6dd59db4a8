"""Section: what the values of an axis that only names settings stand for."""

from __future__ import annotations

from tests.tasks.cell_support import report_of, row, settings


def test_what_named_settings_stand_for() -> None:
    suite = settings(columns="rung", baseline={"rung": "a"}, conditions=[{"when": {"rung": "b"}, "set": {"compile": "layer"}}])
    rows = [row({"pool": "cpu", "rung": rung}, parameters={"compile": chosen}) for rung, chosen in (("a", "none"), ("b", "layer"))]
    section = report_of(rows, suite).section("settings")
    assert section.title == "What each rung sets"
    table = section.table
    assert (table.header, table.rows) == (["rung", "sets"], [["a", "compile none"], ["b", "compile layer"]])
