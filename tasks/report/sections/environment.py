"""Section: the environment that all trials share; what differs is among the confounders."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.config.scalar_text import table_text
from tasks.analysis.trial_row import TrialRow
from tasks.report.section import Facts, ReportSource, Section


def section(source: ReportSource) -> Section | None:
    facts = shared_environment(source.rows)
    if not facts:
        return None
    return Section(
        "environment", "Environment", [Facts(facts)], "The same in every trial.", "The same in every trial that ran.", folded=True
    )


def shared_environment(rows: Sequence[TrialRow]) -> list[tuple[str, str]]:
    """(name, value) of what was the same in every trial that ran. Lists and mappings are left out."""
    ran = [row.environment for row in rows if row.environment]
    names = dict.fromkeys(name for environment in ran for name in environment)
    return [
        (name, table_text(value, missing="unknown"))
        for name in names
        if len({repr(environment.get(name)) for environment in ran}) == 1 and not isinstance(value := ran[0].get(name), dict | list)
    ]
