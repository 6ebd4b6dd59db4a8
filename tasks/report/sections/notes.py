"""Section: what trials noted in their journals."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.analysis.trial_row import TrialRow
from tasks.report.section import Bullets, ReportSource, Section
from tasks.report.text_format import listed


def section(source: ReportSource) -> Section | None:
    lines = notes(source.rows)
    return Section("notes", "Notes", [Bullets(lines)]) if lines else None


def notes(rows: Sequence[TrialRow]) -> list[str]:
    """Each note once, with the trials that have it."""
    by_text: dict[str, list[str]] = {}
    for row in rows:
        for note in dict.fromkeys(row.notes):
            by_text.setdefault(note, []).append(row.trial.name)
    ended = sum(row.result is not None for row in rows)
    return [f"{names[0] if len(names) == 1 else _several(names, ended)}: {note}" for note, names in by_text.items()]


def _several(names: list[str], of: int) -> str:
    return "Every trial" if len(names) == of else listed(names) if len(names) <= 4 else f"{len(names)} trials"
