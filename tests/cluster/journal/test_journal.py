"""The journal: what was written is what is read, and what was changed is named."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cluster.journal import journal as module
from cluster.journal.errors import JournalError
from cluster.journal.journal import Journal, JournalFollower, JournalWriter, last_checksum, read_journal
from cluster.journal.lines import decode, encode


def write(path: Path, steps: int, attempt: int = 1) -> None:
    with JournalWriter(path, attempt) as journal:
        journal.append("environment", device_name="test")
        for step in range(1, steps + 1):
            journal.append("step", t=float(step), step=step, loss=1.0 / step, samples=8, total_s=0.1, measured=True)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "journal.jsonl", 3)
    journal = read_journal(tmp_path / "journal.jsonl")
    assert journal.attempt == 1
    assert [step["step"] for step in journal.steps] == [1, 2, 3]
    assert journal.steps[1]["loss"] == 0.5 and journal.steps[1]["t"] == 2.0
    assert journal.environment == {"device_name": "test"}


def test_every_line_is_plain_json(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "j", 1) as journal:
        journal.append("step", step=1, loss=float("nan"), samples=1)
        journal.append("step", step=2, loss=float("inf"), samples=1)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "j").read_text().splitlines()]
    assert [(line.get("loss"), line.get("loss_text")) for line in lines[1:3]] == [(None, "nan"), (None, "inf")]


def test_a_new_attempt_starts_over(tmp_path: Path) -> None:
    write(tmp_path / "j", 5)
    write(tmp_path / "j", 2, attempt=2)
    journal = read_journal(tmp_path / "j")
    assert journal.attempt == 2 and len(journal.steps) == 2


def test_a_torn_last_line_is_cut_off_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind":"step","t":' + b"9" * 5000)  # more than the next attempt writes
    assert len(read_journal(path).steps) == 2
    write(path, 1, attempt=2)
    assert path.read_bytes().startswith(whole) and path.read_bytes().endswith(b"\n"), "nothing of the torn line is left"
    assert read_journal(path).attempt == 2


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        pytest.param(lambda lines: [lines[0], lines[1], lines[2].replace(b"1.0", b"2.0"), *lines[3:]], 3, id="a figure changed by hand"),
        pytest.param(lambda lines: [lines[0], *lines[2:]], 2, id="a line missing"),
        pytest.param(lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 2, id="two lines swapped"),
        pytest.param(lambda lines: [*lines[:-1], b"what is this\n"], 6, id="not a record"),
        pytest.param(lambda lines: [bytes([lines[0][0] ^ 1]) + lines[0][1:], *lines[1:]], 1, id="a bit flipped"),
    ],
)
def test_damage_is_named_and_nothing_is_overwritten(tmp_path: Path, damage: object, line: int) -> None:
    path = tmp_path / "j"
    write(path, 3)
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))  # type: ignore[operator]
    before = path.read_bytes()
    with pytest.raises(JournalError, match=rf"{path}, line {line}: ") as caught:
        read_journal(path)
    assert caught.value.line == line
    with pytest.raises(JournalError):
        JournalWriter(path, 2)
    assert path.read_bytes() == before


def test_the_checksum_names_the_content(tmp_path: Path) -> None:
    write(tmp_path / "a", 3)
    assert read_journal(tmp_path / "a").checksum == read_journal(tmp_path / "a").checksum
    write(tmp_path / "a", 1, attempt=2)
    first = read_journal(tmp_path / "a").checksum
    write(tmp_path / "a", 1, attempt=3)
    assert read_journal(tmp_path / "a").checksum != first


def test_a_follower_gives_each_record_once(tmp_path: Path) -> None:
    path = tmp_path / "j"
    follower = JournalFollower(path)
    assert follower.poll() == []
    with JournalWriter(path, 1) as journal:
        assert [record["kind"] for record in follower.poll()] == ["attempt"]
        journal.append("step", step=1)
        journal.flush()
        assert [record["kind"] for record in follower.poll()] == ["step"]
        assert follower.poll() == []


def test_a_killed_writer_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    program = f"""
import os
from pathlib import Path
from cluster.journal.journal import JournalWriter
journal = JournalWriter(Path({str(tmp_path / "j")!r}), 1, interval=3600)
for step in range(100):
    journal.append("step", step=step)
journal.flush()
journal.append("step", step=100)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == -9
    assert [step["step"] for step in read_journal(tmp_path / "j").steps] == list(range(100))


def test_a_full_disk_is_an_error_and_not_a_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalWriter(tmp_path / "j", 1, interval=3600)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    journal.append("step", step=1)
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path / 'j'}'"):
        journal.flush()
    with pytest.raises(OSError, match="No space left"):
        journal.append("step", step=2)
    with pytest.raises(OSError, match="No space left"):
        journal.close()
    assert not journal._thread.is_alive()


@pytest.mark.parametrize("value", [np.float32(0.5), {"a": math.nan}, {1, 2}, Path("x")])
def test_what_json_has_not_is_refused_where_it_is_written_and_takes_nothing_with_it(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "journal.jsonl"
    with JournalWriter(path, 1, interval=600) as journal:
        journal.append("step", step=1)
        with pytest.raises((TypeError, ValueError)):
            journal.append("evaluation", when="before", metrics={"accuracy": value})
        journal.append("step", step=2)
    read = read_journal(path)
    assert [step["step"] for step in read.steps] == [1, 2] and read.mark is not None and read.mark.closed


def test_a_line_ends_in_the_checksum_of_itself_and_all_before_it() -> None:
    first, crc = encode({"kind": "step", "t": 1.5, "loss": 0.25}, 0)
    assert crc == zlib.crc32(b'{"kind":"step","t":1.5,"loss":0.25}')
    assert first == b'{"kind":"step","t":1.5,"loss":0.25,"crc":"%08x"}\n' % crc
    second, following = encode({"kind": "note"}, crc)
    assert following == zlib.crc32(b'{"kind":"note"}', crc)
    assert decode(second, crc, Path("j"), 2) == ({"kind": "note"}, following)
    with pytest.raises(
        JournalError, match=rf"^j, line 9: checksum is {following:08x}, the content gives [0-9a-f]{{8}}; the file was changed"
    ):
        decode(second, 0, Path("j"), 9)
    with pytest.raises(ValueError, match="JSON compliant"):  # a reader of plain JSON could not read it
        encode({"deep": [float("nan")]}, 0)


@pytest.mark.parametrize("line", [b"{}\n", b'{"a":1,"crc":"0"}\n', b'{"a":1,"crc":"00000000"}', b'{"a":1,"crc":"00000000"} \n'])
def test_what_is_no_journal_line(line: bytes) -> None:
    with pytest.raises(JournalError, match="line 3: is not a journal line"):
        decode(line, 0, Path("j"), 3)


def test_a_record_carries_when_it_happened_now_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: 50.0))
    with JournalWriter(tmp_path / "deep" / "j", 3) as journal:
        journal.append("note", text="now")
        journal.append("note", t=0.0, text="at the beginning of time")
    records = JournalFollower(tmp_path / "deep" / "j").poll()
    assert records[0] == {"kind": "attempt", "t": 50.0, "attempt": 3, "pid": os.getpid(), "host": os.uname().nodename, "version": 2}
    assert [record["t"] for record in records[1:]] == [50.0, 0.0, 50.0]


def test_the_attempt_is_on_the_disk_before_the_first_step(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path / "j", 1, interval=3600)
    assert read_journal(tmp_path / "j").attempt == 1
    journal.append("step", step=1)
    assert read_journal(tmp_path / "j").steps == [], "append only queues"
    journal.close()
    assert len(read_journal(tmp_path / "j").steps) == 1
    journal.close()  # once more changes nothing


def test_a_thread_writes_and_syncs_what_is_queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced, sizes = tmp_path / "j", threading.Event(), []
    journal = JournalWriter(path, 1, interval=0.001)

    def fsync(_: int) -> None:
        sizes.append(path.stat().st_size)
        synced.set()

    monkeypatch.setattr(os, "fsync", fsync)
    journal.append("step", step=1)
    assert synced.wait(60), "nothing was synced without flush"
    assert len(read_journal(path).steps) == 1
    journal.flush()
    assert sizes == [path.stat().st_size], "what was written was synced, once; nothing to write is no reason to"
    journal.close()
    assert sizes[1:] == [path.stat().st_size], "the record that closes it"


def test_a_thread_that_cannot_write_says_so_at_the_next_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalWriter(tmp_path / "j", 1, interval=0.001)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    journal.append("step", step=1)
    journal._thread.join(60)
    assert not journal._thread.is_alive()
    with pytest.raises(OSError, match="No space left"):
        journal.append("step", step=2)
    with pytest.raises(OSError, match="No space left"):
        journal.flush()
    with pytest.raises(KeyError, match="the trial's own"), journal:  # the error of closing does not hide it
        raise KeyError("the trial's own")


def test_a_file_that_cannot_be_closed_is_an_error(tmp_path: Path) -> None:
    """Some file systems say only then that a write has failed."""
    journal = JournalWriter(tmp_path / "j", 1, interval=3600)
    file = journal._file

    class Lost:
        closed = False

        def close(self) -> None:
            file.close()
            raise OSError(5, "Input/output error")

    journal._file = Lost()  # type: ignore[assignment]
    with pytest.raises(OSError, match="Input/output error"):
        journal.close()


def test_an_error_of_closing_is_raised_where_nothing_else_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"), JournalWriter(tmp_path / "j", 1, interval=3600) as journal:
        monkeypatch.setattr(os, "fsync", full)
        journal.append("step", step=1)


def test_a_follower_waits_for_the_end_of_a_line_and_counts_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "j"
    first, crc = encode({"kind": "step", "step": 1}, 0)
    second, last = encode({"kind": "step", "step": 2}, crc)
    path.write_bytes(first + second[:-1])
    follower = JournalFollower(path)
    assert [record["step"] for record in follower.poll()] == [1]
    assert (follower.offset, follower.checksum) == (len(first), crc)
    path.write_bytes(first + second)
    assert [record["step"] for record in follower.poll()] == [2]
    assert (follower.offset, follower.checksum) == (len(first + second), last)
    path.write_bytes(first + second + b"damage\n")
    with pytest.raises(JournalError) as caught:
        follower.poll()
    assert (caught.value.path, caught.value.line) == (path, 3)


def test_a_journal_sorts_its_records_and_keeps_the_last_of_what_there_is_one_of() -> None:
    records: list[dict[str, Any]] = [
        {"kind": "attempt", "t": 1.0, "attempt": 1},
        {"kind": "window", "t": 1.0, "wall_s": 9.0},
        {"kind": "end", "t": 1.0, "outcome": "crashed"},
        {"kind": "attempt", "t": 2.0, "attempt": 2},
        {"kind": "environment", "t": 3.0, "host": "a"},
        {"kind": "environment", "t": 3.0, "host": "b", "driver": None},
        {"kind": "phase", "t": 4.0, "name": "start"},
        {"kind": "step", "t": 5.0, "step": 1},
        {"kind": "evaluation", "t": 6.0, "when": "before"},
        {"kind": "note", "t": 7.0, "text": "n"},
        {"kind": "from a later version", "t": 7.0},
    ]
    journal = Journal()
    for record in records:
        journal.add(record)
    assert (journal.attempt, journal.started_at, journal.window, journal.end) == (2, 2.0, None, None)
    assert journal.environment == {"host": "b", "driver": None}
    assert (journal.phases, journal.steps, journal.evaluations, journal.notes) == ([records[6]], [records[7]], [records[8]], [records[9]])
    journal.add({"kind": "window", "t": 8.0, "wall_s": 1.0})
    journal.add({"kind": "window", "t": 8.0, "wall_s": 2.0})
    journal.add({"kind": "end", "t": 9.0, "outcome": "ok"})
    assert (journal.window or {})["wall_s"] == 2.0 and (journal.end or {})["outcome"] == "ok"


def test_the_checksum_is_that_of_the_last_line(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "absent") == Journal() and Journal().checksum == "00000000"
    write(tmp_path / "j", 1)
    assert json.loads((tmp_path / "j").read_text().splitlines()[-1])["crc"] == read_journal(tmp_path / "j").checksum


def test_the_first_record_names_the_trial_that_it_is_the_journal_of(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "j", 1, trial="a" * 16):
        pass
    assert read_journal(tmp_path / "j").trial == "a" * 16
    with JournalWriter(tmp_path / "j", 2):
        pass
    assert read_journal(tmp_path / "j").trial is None, "of the last attempt"


def test_any_attempt_of_a_journal_can_be_read(tmp_path: Path) -> None:
    for attempt, key, steps in ((1, "a" * 16, 3), (2, None, 1), (3, None, 0), (3, "c" * 16, 2)):
        with JournalWriter(tmp_path / "j", attempt, trial=key) as journal:
            for number in range(1, steps + 1):
                journal.append("step", step=number)
    found = [read_journal(tmp_path / "j", attempt) for attempt in (1, 2, 3, 4)]
    assert [(one.attempt, one.trial, len(one.steps)) for one in found] == [
        (1, "a" * 16, 3),
        (2, None, 1),
        (3, "c" * 16, 2),  # written twice: the later one
        (0, None, 0),
    ]
    last = read_journal(tmp_path / "j")
    assert last == found[2] and {one.checksum for one in found} == {last.checksum}, "the checksum is the whole file's"
    assert read_journal(tmp_path / "absent", 1) == Journal()


def test_a_damaged_later_attempt_is_found_by_a_reader_of_an_earlier_one(tmp_path: Path) -> None:
    for attempt in (1, 2):
        with JournalWriter(tmp_path / "j", attempt) as journal:
            journal.append("note", text=f"attempt {attempt}")
    (tmp_path / "j").write_text((tmp_path / "j").read_text().replace("attempt 2", "attempt 9"))
    with pytest.raises(JournalError, match="line 5: checksum"):
        read_journal(tmp_path / "j", 1)


def test_the_last_line_alone_tells_the_checksum(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert last_checksum(path) == read_journal(path).checksum == "00000000"
    for attempt in (1, 2):
        with JournalWriter(path, attempt, interval=60) as journal:
            journal.append("note", text="a" * 100_000)
        assert last_checksum(path) == read_journal(path).checksum
    with open(path, "ab") as file:
        file.write(b'{"kind":"step","crc":"01234567"}')  # a writer that was killed
    assert last_checksum(path) == read_journal(path).checksum
