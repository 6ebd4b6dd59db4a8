"""A trial's device_state.jsonl: attempts follow each other in it, and what was changed is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalWriter
from cluster.sampler.state_file import read_records, read_state

STEPS = [
    {"t": 1.0, "total_s": 0.5, "measured": False},
    {"t": 2.0, "total_s": 0.5, "measured": True},
    {"t": 3.0, "total_s": 1.0, "measured": True},
]


def write(folder: Path, attempt: int, mhz: int) -> None:
    with JournalWriter(folder / "device_state.jsonl", attempt, interval=600) as journal:
        journal.append("sampler", attempt=attempt, device="cuda", hz=10.0, user="ada")
        for tick in range(1, 41):
            device: dict[str, Any] = {"index": 0, "sm_mhz": mhz, "capped_by": [], "others": []}
            journal.append("state", t=tick / 10, devices=[device], cpu={})


def test_each_attempt_has_its_own_records_and_its_own_window(tmp_path: Path) -> None:
    write(tmp_path, 1, 1000)
    write(tmp_path, 2, 1800)
    assert [len(read_records(tmp_path / "device_state.jsonl", attempt)) for attempt in (1, 2, 3)] == [42, 42, 0]
    for attempt, mhz in ((1, 1000), (2, 1800)):
        state = read_state(tmp_path, attempt, STEPS)
        assert state is not None
        assert (state.clock_mean_mhz, state.samples, state.coverage) == (pytest.approx(mhz), 15, pytest.approx(1.0))
    assert read_state(tmp_path, 3, STEPS) is None


def test_without_a_file_or_a_window_there_is_no_state(tmp_path: Path) -> None:
    assert read_state(tmp_path, 1, STEPS) is None
    write(tmp_path, 1, 1000)
    assert read_state(tmp_path, 1, STEPS[:1]) is None


def test_a_changed_line_is_named(tmp_path: Path) -> None:
    write(tmp_path, 1, 1000)
    path = tmp_path / "device_state.jsonl"
    path.write_text(path.read_text().replace('"sm_mhz":1000', '"sm_mhz":1900', 1))
    with pytest.raises(JournalError, match=r"device_state.jsonl, line 3: checksum"):
        read_state(tmp_path, 1, STEPS)
