"""An attempt that ended badly after all was measured counts: what comes after the window's record takes no measurement away.

The traces come last, and only tell where the time went. A process that fails alone within a traced step, that the kernel kills while it
reads a trace, or that hangs there, leaves nobody in the trial who could say how it went. Rank 0 has recorded the window before
(cluster/worker/trial_session.py), with TO_COME in it. From that whoever outlives it completes the journal: the ranks' supervisor, a Ray
job's driver, the flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.journal.journal import JournalFollower, JournalWriter, attempt_in
from cluster.journal.lines import Record
from cluster.journal.writer_lock import ENDED_S, writer_ended
from experiments.trial import Outcome

TO_COME = {"traces": "to come"}  # in a window record after which only traces follow
_STAYS = (Outcome.OK, Outcome.CANCELLED)  # endings that stay what they are
_OF_THE_WRITER = ("attempt", "end")  # records that a new section has of its own


def complete_measured(path: Path, attempt: int, trial: str, outcome: Outcome, reason: str | None) -> bool:
    """Whether the attempt counts as ok, although it ended as `outcome` for `reason`: all that is compared had been measured.

    Then the attempt stands once more in the journal at `path`, closed and with a note of what happened, unless its writer has closed it as
    ok. `trial`: its key. Raises JournalError and OSError: TimeoutError where its writer has not ended within ENDED_S, or may not have, as
    nobody knows on a file system without locks.
    """
    if outcome in _STAYS:
        return False
    records, section = attempt_in(JournalFollower(path, trial), attempt)
    if section is None or _window(records) is None:
        return False
    if not writer_ended(path, ENDED_S):
        raise TimeoutError(f"{path}: a process of the trial may still write into it, so nobody else may")
    records, section = attempt_in(JournalFollower(path, trial), attempt)  # its writer may have gone on until it ended
    window = _window(records)
    if section is None or window is None:
        return False
    if section.closed and any(record["kind"] == "end" and record["outcome"] == str(Outcome.OK) for record in records):
        return True
    what = "no steps were traced: the trial ended in its traces," if TO_COME.items() <= window.items() else "the trial ended"
    with JournalWriter(path, attempt, trial=trial) as journal:
        for record in (one for one in records if one["kind"] not in _OF_THE_WRITER):
            journal.append(**(_without_mark(record) if record["kind"] == "window" else record))
        journal.append("note", text=f"{what} after all else was measured: {' '.join((reason or str(outcome)).split())}")
        journal.append("end", outcome=str(Outcome.OK), reason=None)
    return True


def _window(records: Sequence[Record]) -> Record | None:
    return next((record for record in reversed(records) if record["kind"] == "window"), None)


def _without_mark(window: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in window.items() if name not in TO_COME}
