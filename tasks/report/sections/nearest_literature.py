"""Section: others' numbers for a workload, each beside our nearest cell of the same model, and what differs from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tasks.report.comparison_table import TextTable
from tasks.report.published_beside import Beside, published_beside, setting
from tasks.report.section import Bullets, ReportSource, Section, table_section
from tasks.report.text_format import plural

HEADER = ("published by others", "setting", "their value", "our nearest cell", "our value", "what differs", "source")
MOST = 8  # lines, the nearest
ABOUT = (
    "Not our measurements, and no verdict on either. Beside each published value stands our nearest cell of the same model, or our two "
    "cells that make the same ratio, with what differs of all that the line names: where anything does, it is no like-for-like comparison. "
    "Of cells that are as near our best stands there, and of ratios that of the plainest cells. A total of another number of devices is "
    "told for one device. Our values have their "
    "interval where it is known. The nearest come first."
)


def section(source: ReportSource) -> Section | None:
    lines = published_beside(source.cells)
    section = table_section("nearest_literature", "Published by others", nearest_published(lines), ABOUT)
    if section is None:
        return None
    rest = len(lines) - MOST
    left_out = [Bullets([f"{plural(rest, 'line')} more, no nearer than these, left out."])] if rest > 0 else []
    return replace(section, blocks=[*section.blocks, *left_out], folded=True)


def nearest_published(lines: Sequence[Beside]) -> TextTable:
    """The nearest lines; no row where there is none."""
    return TextTable(HEADER, [_row(line) for line in lines[:MOST]])


def _row(line: Beside) -> list[str]:
    differs = f"not like for like: {'; '.join(line.differs)}" if line.differs else "nothing that the line names"
    differs += f"; ours with {', '.join(line.ours_with)}" if line.ours_with else ""
    return [line.entry.accelerator, setting(line.entry), line.theirs, line.cell, line.ours, differs, line.entry.source]
