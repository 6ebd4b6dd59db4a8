"""Section: every trial that did not end ok, with its reason."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.analysis.trial_row import TrialRow
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.text_format import OUTCOMES, plural

NAME = "outcomes"


def section(source: ReportSource) -> Section | None:
    return table_section(NAME, "Outcomes", outcomes_table(source.rows), _text(source.rows))


def outcomes_table(rows: Sequence[TrialRow]) -> TextTable:
    return TextTable(["trial", "outcome", "reason"], [_row(row) for row in rows if row.outcome != "ok"])


def _text(rows: Sequence[TrialRow]) -> str:
    """Says that the rows are trials: elsewhere cells are counted, each of which may have several."""
    failed = [row for row in rows if row.outcome != "ok"]
    cells = len({row.trial.cell for row in failed})
    return f"Every trial that did not end ok: {plural(len(failed), 'trial')} of {plural(cells, 'cell')}."


def _row(row: TrialRow) -> list[str]:
    without_reason = "has not run" if row.result is None else "no reason given"
    return [row.trial.name, OUTCOMES.get(row.outcome, row.outcome), row.reason or without_reason]
