"""Section: the figures that were drawn of the sweep."""

from __future__ import annotations

from tasks.report.section import Figures, ReportSource, Section

RANKED = frozenset({"throughput"})  # on the page the ranking's bars say it


def section(source: ReportSource) -> Section | None:
    if not source.figures:
        return None
    only_ranked = all(path.stem in RANKED for _, path in source.figures)
    return Section("figures", "Figures", [Figures(source.figures, RANKED)], on_page=not only_ranked)
