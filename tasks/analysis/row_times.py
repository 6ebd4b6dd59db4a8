"""What the trials of a sweep took, from its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.analysis.trial_row import TrialRow
from tasks.sweep.round_time import TrialTimes, trial_times


def row_times(rows: Sequence[TrialRow], expected: Mapping[str, float] | None = None) -> TrialTimes:
    """`trial_times` of the rows that have ended."""
    ended = [(row.trial, row.result) for row in rows if row.result is not None]
    return trial_times(ended, expected, {row.trial.key: row.flow for row in rows if row.flow is not None})
