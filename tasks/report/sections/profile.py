"""Section: what ran in the traced steps, by group of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.analysis.cell import Cell
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.text_format import number, percent, seconds

ABOUT = "Steps after the measured window, traced by torch.profiler, which slows the host. What ran side by side counts in full."


def section(source: ReportSource) -> Section | None:
    about = " ".join(filter(None, [ABOUT, _kinds(source.cells)]))
    return table_section("profile", "What ran in the traced steps", profile(source.cells), about)


def profile(cells: Sequence[Cell]) -> TextTable:
    """For each cell with traced steps: time by group of kernels, the largest first, and the time in which nothing ran."""
    header = ["cell", "what ran", "per step", "share", "calls per step", "longest of them"]
    rows = []
    for cell in cells:
        trace = _trace(cell)
        if not trace:
            continue
        span = float(trace["span_s"])
        for group in trace["groups"]:
            spent = float(group["seconds"])
            rows.append([cell.short, group["group"], seconds(spent), percent(spent / span), number(group["calls"], 3), group["top"]])
        rows.append([cell.short, f"nothing ({trace['where']} idle)", seconds(trace["idle_s"]), percent(trace["idle_s"] / span), "–", "–"])
    return TextTable(header, rows, names=2)


def _trace(cell: Cell) -> Mapping[str, Any] | None:
    return next((row.profile for row in cell.rows if row.outcome == "ok" and row.profile), None)


def _kinds(cells: Sequence[Cell]) -> str:
    """Of which kinds the traced steps were, in their order, where steps have kinds; empty where they have none."""
    traces = [(cell.short, trace) for cell in cells if (trace := _trace(cell))]
    told = [f"{name} {', '.join(map(str, trace['step_kinds']))}" for name, trace in traces if trace.get("step_kinds")]
    return f"The kinds of step that were traced, in their order: {'; '.join(told)}." if told else ""
