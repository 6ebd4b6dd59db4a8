"""Section: the packages that differ between the environments of an axis."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.trial import DEFAULT_ENVIRONMENT
from tasks.analysis.packages import ABSENT, differing
from tasks.analysis.trial_row import TrialRow
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.text_format import listed


def section(source: ReportSource) -> Section | None:
    return table_section(
        "environments",
        "Environments",
        environments_table(source.rows),
        "The packages that differ between the environments.",
        "Installed packages whose version is not the same in all environments; all others are.",
    )


def environments_table(rows: Sequence[TrialRow]) -> TextTable:
    """A row for each package that differs, a column for each environment; none where trials ran in one, or do not tell."""
    by_name: dict[str, list[TrialRow]] = {}
    for row in rows:
        if row.packages:
            by_name.setdefault(row.trial.environment or DEFAULT_ENVIRONMENT, []).append(row)
    names = differing([row for mine in by_name.values() for row in mine]) if len(by_name) > 1 else []
    table = [[name, *(_versions(mine, name) for mine in by_name.values())] for name in names]
    return TextTable(["package", *by_name], table)


def _versions(rows: Sequence[TrialRow], name: str) -> str:
    """Mostly one; several where trials of an environment ran on several pools, or before and after a change of it."""
    return listed(list(dict.fromkeys(row.packages.get(name, ABSENT) for row in rows)))
