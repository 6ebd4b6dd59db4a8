"""Which cells take part in the next round of a sweep that goes on round by round, whatever is decided."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.analysis.trial_row import TrialRow, keep_failing
from tasks.sweep.store import Plan


def running_cells(plan: Plan, rows: Sequence[TrialRow], rounds: int) -> list[str]:
    """Hashes of the cells of which a trial ended ok, without those that keep failing, and without references of loss parity where `rounds`,
    that were run, gave them as many seeds as it needs."""
    seeds = plan.suite.parity_reference if plan.suite.repeats_are_seeds else 1
    by_cell: dict[str, list[TrialRow]] = {}
    for row in rows:
        if not row.trial.reference or rounds < seeds:
            by_cell.setdefault(row.trial.cell, []).append(row)
    return [cell for cell, of in by_cell.items() if any(row.outcome == "ok" for row in of) and not keep_failing(of)]
