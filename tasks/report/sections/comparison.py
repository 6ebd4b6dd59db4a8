"""Section: the comparison table, with what the table compares."""

from __future__ import annotations

from tasks.report.section import Bullets, ReportSource, Section

SEEDS = "Each repeat of a cell has another seed: the intervals hold what varies from training to training."


def section(source: ReportSource) -> Section | None:
    """None of a sweep without cells that measured, as of emulated devices alone: those have a report of their own."""
    if not source.table.rows:
        return None
    learnt = any(cell.metric.depends_on_seed and len(cell.measured) > 1 for cell in source.cells)
    seeds = [Bullets([SEEDS])] if learnt and source.sweep.plan.suite.repeats_are_seeds else []
    return Section("comparison", "Comparison", [source.table, *seeds])
