"""Read a trial's device_state.jsonl. It has the journal's form, so a changed, missing or moved line is found and named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.journal.journal import JournalFollower, Record
from cluster.trial_layout import DEVICE_STATE
from experiments.device_state import DeviceState, measured_window, summarise_state


def read_records(path: Path, attempt: int) -> list[Record]:
    """The records of one attempt, oldest first; none where the file or the attempt is missing. Raises JournalError."""
    records: list[Record] = []
    current = None
    for record in JournalFollower(path).poll():
        if record["kind"] == "attempt":
            current = record["attempt"]
        if current == attempt:
            records.append(record)
    return records


def read_state(trial_dir: Path, attempt: int, steps: Sequence[Mapping[str, Any]]) -> DeviceState | None:
    """The state over the measured window of `steps` (records of that attempt's journal, or rows of steps.parquet).

    None where nothing was sampled or nothing measured. Raises JournalError for a file that was changed after it was written.
    """
    window = measured_window(steps)
    if window is None or not window[0] < window[1]:
        return None
    records = read_records(trial_dir / DEVICE_STATE, attempt)
    return summarise_state(records, *window) if records else None
