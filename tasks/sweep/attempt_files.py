"""What lies in a trial's folder once an attempt is over: nothing half-written, and no trace but that of the attempt that counts."""

from __future__ import annotations

from pathlib import Path

from cluster.journal.journal import Journal
from cluster.trial_layout import RESULT, TRACE
from experiments.atomic_file import remove_temporaries
from experiments.trial import Outcome, TrialResult


def tidy(folder: Path, result: TrialResult, journal: Journal) -> None:
    """Remove what a killed process had written of its trace or result, and an earlier attempt's trace where this one counts and made none.

    All processes of the attempt, whose records `journal` has, must have been told to end. What lies in a node's scratch folder, on a pool
    with storage, goes when the next trial begins there (`remove_half_traces` in cluster/worker/trial_files.py). Raises OSError.
    """
    for part in folder.glob(f".*{TRACE}*"):  # see `trace_file` and `compress` in cluster/worker/measure/profile.py
        part.unlink(missing_ok=True)
    remove_temporaries(folder / RESULT)
    window = journal.window or {}
    made = "profile" in window and "trace_not_kept" not in window
    if result.outcome is Outcome.OK and not made:
        (folder / TRACE).unlink(missing_ok=True)
