"""An attempt that is over and had measured all that is compared counts, whatever ended it afterwards; and how many did."""

from __future__ import annotations

from logging import getLogger
from pathlib import Path

from cluster.attempt_result import attempt_result
from cluster.journal.after_window import complete_measured
from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalFollower
from cluster.trial_layout import JOURNAL
from experiments.trial import Outcome, Trial, TrialResult


def count_measured(result: TrialResult, trial: Trial, folder: Path) -> TrialResult:
    """`result`, or ok where the journal in `folder` has all that is compared: its process was killed, crashed or hung later.

    All processes of the attempt must have been told to end. Where nobody knows whether they have, or the journal cannot be written, the
    result stays.
    """
    try:
        counts = complete_measured(folder / JOURNAL, result.attempt, trial.key, result.outcome, result.reason)
    except (JournalError, OSError) as error:
        getLogger(__name__).warning("trial %s was measured before it ended, and this cannot be kept: %s", trial.name, error)
        return result
    if not counts:
        return result
    counted = attempt_result(trial, folder, result.attempt, result.started_at, Outcome.OK, None, None)
    return counted.model_copy(update={"finished_at": result.finished_at})  # a resume counts what ended long ago


def times_measured(result: TrialResult, folder: Path) -> int:
    """How often the trial had been measured by the end of this result's attempt, which measured it: as far as its journal tells, at least
    once."""
    try:
        records = JournalFollower(folder / JOURNAL, result.key).poll()
    except JournalError:
        return 1
    attempt, measured = 0, {result.attempt}
    for record in records:
        if record["kind"] == "attempt":
            attempt = record["attempt"]
        elif record["kind"] == "end" and record["outcome"] == str(Outcome.OK) and attempt < result.attempt:
            measured.add(attempt)
    return len(measured)
