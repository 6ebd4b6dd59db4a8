"""A trial's journal after its window, as a process leaves it that failed or was killed then."""

from __future__ import annotations

from pathlib import Path

from cluster.journal.after_window import TO_COME
from cluster.journal.journal import JournalWriter
from experiments.trial import Outcome

KEY = "ab34000000000002"


def write_measured(
    path: Path, attempt: int = 1, *, window: bool = True, traces_to_come: bool = True, end: Outcome | None = None, key: str = KEY
) -> None:
    """An attempt of four steps, of which two are measured: 40 samples/s. Its writer was killed, unless it has an `end`."""
    journal = JournalWriter(path, attempt, trial=key)
    for step in range(1, 5):
        journal.append("step", t=100.0 + step, step=step, samples=4, total_s=0.1, loss=1.0, measured=step > 2)
    journal.append("note", text="something")
    if window:
        journal.append("window", wall_s=0.2, samples=8, **(TO_COME if traces_to_come else {}))
    if end is not None:
        journal.append("end", outcome=str(end), reason=None if end is Outcome.OK else "told to end (SIGTERM)")
        journal.close()
        return
    journal.flush()
    journal._file.close()
    journal._lock_of_file.release()  # as a SIGKILL leaves it
