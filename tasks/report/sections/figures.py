"""Section: the figures that were drawn of the sweep."""

from __future__ import annotations

from tasks.report.section import Figures, ReportSource, Section


def section(source: ReportSource) -> Section | None:
    return Section("figures", "Figures", [Figures(source.figures)]) if source.figures else None
