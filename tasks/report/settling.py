"""What is said of trials whose step times were not shown to settle: those that were still changing, and those too short to tell."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.analysis.trial_row import TrialRow
from tasks.report.text_format import plural

TOO_FEW_STEPS = "too few steps to tell whether step times settled"


def settling_notes(rows: Sequence[TrialRow]) -> list[str]:
    """For the table, of a cell's trials `rows`; nothing where all settled."""
    few = [row for row in rows if row.too_few_steps]
    unsettled = any(row.settled is False for row in rows)
    return [*(["did not settle"] if unsettled else []), *([f"{TOO_FEW_STEPS} ({step_counts(few)})"] if few else [])]


def step_counts(rows: Sequence[TrialRow]) -> str:
    """How many steps these trials measured: `5 steps`, `3 to 6 steps`."""
    counts = [int(row.summary.get("measured_steps") or 0) for row in rows]
    least, most = min(counts), max(counts)
    return f"{least} to {plural(most, 'step')}" if least < most else plural(most, "step")
