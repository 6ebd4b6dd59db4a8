"""A trial that was measured and then failed within its traces counts: the traces come last, and only tell where the time went.

A rank that fails alone within a traced step leaves the others in it, so they are ended, and no process is left that could say how the trial
went. Rank 0 has recorded the window before (trial_session.py), with TO_COME in it. From that the supervisor completes the journal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster.journal.journal import JournalFollower, JournalWriter, attempt_in
from cluster.worker.outcome import Termination, line
from experiments.trial import Outcome

TO_COME = {"traces": "to come"}  # in a window record after which only traces follow
_COUNTS_NOT = (Outcome.OK, Outcome.CANCELLED)  # endings that stay what they are
_OF_THE_WRITER = ("attempt", "end")  # records that a new section has of its own


def in_spite_of_traces(ending: Termination, path: Path, attempt: int, trial: str) -> Termination:
    """How the trial ended: ok where all but its traces had been measured, else as `ending` says.

    Where it is ok, the attempt is written once more into the journal at `path`, closed and with a note of what happened: its writer may
    have been killed. `trial`: its key. Raises JournalError and OSError.
    """
    if ending.outcome in _COUNTS_NOT:
        return ending
    records, section = attempt_in(JournalFollower(path, trial), attempt)
    window = next((record for record in reversed(records) if record["kind"] == "window"), None)
    if section is None or window is None or not TO_COME.items() <= window.items():
        return ending
    with JournalWriter(path, attempt, trial=trial) as journal:
        for record in (one for one in records if one["kind"] not in _OF_THE_WRITER):
            journal.append(**(_without_mark(record) if record["kind"] == "window" else record))
        journal.append(
            "note", text=line(f"no steps were traced: the trial ended in its traces, after all else was measured: {ending.reason}")
        )
        journal.append("end", outcome=str(Outcome.OK), reason=None)
    return Termination(Outcome.OK)


def _without_mark(window: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in window.items() if name not in TO_COME}
