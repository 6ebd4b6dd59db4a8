"""Section: the comparison table, with what the table compares."""

from __future__ import annotations

from tasks.report.section import ReportSource, Section


def section(source: ReportSource) -> Section:
    return Section("comparison", "Comparison", [source.table])
