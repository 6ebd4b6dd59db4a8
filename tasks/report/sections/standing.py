"""Section: of a sweep with a budget, how each comparison stands and what would decide it."""

from __future__ import annotations

from tasks.report.comparison_table import TextTable
from tasks.report.marks import marks_of
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.standing import standing_of, stands
from tasks.report.text_format import change_text

NAME = "standing"
TEXT = (
    "Comparisons are looked at after several rounds. A verdict and its interval are of the look that decided it, and hold for all looks "
    "together. The rounds still needed are estimated from the effect and the spread as they are now."
)


def section(source: ReportSource) -> Section | None:
    standing = standing_of(source.sweep, source.cells)
    if standing is None:
        return None
    compared = [(cell, cell.speedup) for cell in source.cells if cell.verdict is not None and cell.speedup is not None]
    rows = [
        [
            cell.short,
            ", ".join(marks_of(cell)) or str(cell.verdict),
            change_text(ratio, cell.metric),
            stands(cell, standing),
        ]
        for cell, ratio in compared
    ]
    table = TextTable(["cell", "verdict", "against its baseline", "rounds"], rows, verdicts=1)
    made = table_section(NAME, "How the comparisons stand", table, TEXT)
    return made and Section(made.name, made.title, made.blocks, made.text, part_of_previous=True)
