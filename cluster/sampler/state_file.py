"""Read a trial's device_state.jsonl. It has the journal's form, so a changed, missing or moved line is found and named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalFollower, attempt_in
from cluster.journal.lines import Record
from cluster.trial_layout import DEVICE_STATE, RESULT
from experiments.device_state import DeviceState, measured_window, summarise_state
from experiments.journal_mark import JournalMark


def read_records(path: Path, attempt: int, mark: JournalMark | None = None) -> list[Record]:
    """The records of one attempt, oldest first; none where the file or the attempt is missing.

    `mark`: what the trial's result says of them. Raises JournalError, also where they are not the ones of `mark`.
    """
    follower = JournalFollower(path)
    records, section = attempt_in(follower, attempt)
    if mark is not None and (section is None or section.mark != mark):
        there = f"other records ({section.records})" if section else "no records"
        raise JournalError(path, follower.lines, f"has {there} of attempt {attempt}, and {RESULT} counts {mark.records}")
    return records


def mark_of(path: Path, attempt: int) -> JournalMark | None:
    """Which records of one attempt there are; None where the file or the attempt is missing. Raises JournalError."""
    _, section = attempt_in(JournalFollower(path), attempt)
    return section.mark if section else None


def read_state(trial_dir: Path, attempt: int, steps: Sequence[Mapping[str, Any]], mark: JournalMark | None = None) -> DeviceState | None:
    """The state over the measured window of `steps` (records of that attempt's journal, or rows of steps.parquet).

    None where nothing was sampled or nothing measured. `mark`: what the trial's result says of the sampler's records. Raises JournalError
    for a file that was changed after it was written.
    """
    records = read_records(trial_dir / DEVICE_STATE, attempt, mark)
    window = measured_window(steps)
    if window is None or not window[0] < window[1]:
        return None
    return summarise_state(records, *window) if records else None
