"""An attempt of a trial begins only once no process of an earlier one writes any more, which may be on a host that its cluster has lost.

Where flow and nodes share the trial's folder, both would write into the same files: a raylet that was killed, or a network that was cut,
ends no process of a trial.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cluster.journal.errors import JournalInUse
from cluster.journal.journal import last_writer
from cluster.journal.writer_lock import ENDED_S, writer_ended

NO_LOCKS = "the journal's file system has no file locks: nobody knows whether a process of an earlier attempt still writes there"


def await_end(journal: Path, patience_s: float = ENDED_S) -> tuple[list[str], float]:
    """Wait until nobody writes the journal. Returns notes of whom that was for, and for how long (s).

    Nothing and 0.0 where nobody wrote, and on a file system without locks. Raises JournalInUse where it is still written after
    `patience_s`, and OSError where it cannot be opened.
    """
    if writer_ended(journal, 0.0) is not False:
        return [], 0.0
    writer, began = last_writer(journal), time.monotonic()
    print(f"{journal}: waiting up to {patience_s:g} s for the end of {writer}", file=sys.stderr, flush=True)
    if writer_ended(journal, patience_s) is False:
        raise JournalInUse.after(patience_s, journal, writer)
    waited_s = time.monotonic() - began
    return [f"waited {waited_s:.1f} s for the end of {writer}, which wrote here"], waited_s
