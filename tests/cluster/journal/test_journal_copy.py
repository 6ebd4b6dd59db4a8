"""Segments are read once each, in order and as they were written; the flow's copy has each line once, whatever failed between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.journal.errors import JournalError
from cluster.journal.journal import read_journal
from cluster.journal.object_store import Storage, StorageError
from cluster.journal.replication import JournalCopy, SegmentReader
from cluster.trial_layout import journal_segment
from tests.cluster.journal.segment_support import Memory, lines, segments, send


def test_the_last_segment_of_a_part_may_come_between_the_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part was whole before the next began: who finds the next one looks for more of this one before going on."""
    memory = Memory()
    first, crc = lines({"kind": "step", "step": 1})
    late, _ = lines({"kind": "step", "step": 2}, crc=crc)
    other, _ = lines({"kind": "step", "step": 3})
    memory.objects = {journal_segment(1, 0, 0): first}

    def write(name: str) -> None:
        if name == journal_segment(1, 1, 0):
            memory.objects |= {journal_segment(1, 0, 1): late, journal_segment(1, 1, 0): other}

    monkeypatch.setattr(memory, "before_get", write)
    reader = SegmentReader(memory, 1)
    assert [record["step"] for record in reader.poll()] == [1, 2, 3]
    assert reader.poll() == []


def test_a_reader_takes_each_segment_once_and_names_one_that_is_not_as_written() -> None:
    memory = Memory()
    first, crc = lines({"kind": "step", "step": 1}, {"kind": "step", "step": 2})
    second, _ = lines({"kind": "step", "step": 3}, crc=crc)
    memory.objects = {journal_segment(2, 0, 0): first, journal_segment(2, 0, 2): b""}
    reader = SegmentReader(memory, 2)
    assert [record["step"] for record in reader.poll()] == [1, 2]
    assert reader.poll() == []
    memory.objects[journal_segment(2, 0, 1)] = second[:-3] + b"\n"
    for _ in range(2):  # it stays where it was
        with pytest.raises(JournalError, match=r"^memory:/store/journal-a2/0-00000001\.jsonl, line 1: is not a journal line"):
            reader.poll()
    memory.objects[journal_segment(2, 0, 1)] = second
    with pytest.raises(JournalError, match=r"journal-a2/0-00000002\.jsonl, line 1: is empty"):
        reader.poll()


def test_what_was_read_before_the_storage_failed_is_handed_over_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, copied, failures = Memory(), tmp_path / "journal.jsonl", [journal_segment(1, 0, 3)]
    memory.objects = segments(4)

    def fail_once(name: str) -> None:
        if name in failures:
            failures.remove(name)
            raise StorageError("a blip")

    monkeypatch.setattr(memory, "before_get", fail_once)
    copy = JournalCopy(copied, memory, 1)
    with pytest.raises(StorageError, match="a blip"):
        copy.fetch()
    copy.fetch()
    assert [step["step"] for step in read_journal(copied).steps] == [1, 2, 3, 4] and failures == []


def test_what_could_not_be_written_is_copied_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was full after half a line."""
    memory, copied = Memory(), tmp_path / "journal.jsonl"
    memory.objects = segments(4)
    whole = b"".join(memory.objects.values())
    copy = JournalCopy(copied, memory, 1)

    def full(descriptor: int) -> None:
        os.truncate(descriptor, len(whole) // 2)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            copy.fetch()
    assert copied.read_bytes() == whole[: len(whole) // 2]
    copy.fetch()
    assert copied.read_bytes() == whole


def test_a_copy_is_on_the_disk_before_fetch_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, copied, synced = Memory(), tmp_path / "flow" / "journal.jsonl", []
    memory.objects[journal_segment(1, 0, 0)] = lines({"kind": "attempt", "attempt": 1, "t": 1.0})[0]

    def fsync(descriptor: int) -> None:
        assert os.path.samestat(os.fstat(descriptor), copied.stat())
        synced.append(copied.read_bytes())

    monkeypatch.setattr(os, "fsync", fsync)
    copy = JournalCopy(copied, memory, 1)
    copy.fetch()
    assert synced == [copied.read_bytes()] and synced[0]
    copy.fetch()
    assert len(synced) == 1


def test_a_copy_that_is_ahead_of_what_can_be_read_gets_no_line_twice(tmp_path: Path) -> None:
    """The flow before this one had read three lines; now the storage shows them one by one."""
    memory, copied = Memory(), tmp_path / "journal.jsonl"
    records: list[dict[str, object]] = [{"kind": "attempt", "attempt": 1, "t": 1.0}, *({"kind": "step", "step": n} for n in range(1, 5))]
    crc = 0
    parts = []
    for record in records:
        text, crc = lines(record, crc=crc)
        parts.append(text)
    copied.write_bytes(b"".join(parts[:3]))
    copy = JournalCopy(copied, memory, 1)
    for number, text in enumerate(parts):
        memory.objects[journal_segment(1, 0, number)] = text
        copy.fetch()
    assert copied.read_bytes() == b"".join(parts)


def test_a_copy_of_an_earlier_attempt_is_appended_to(tmp_path: Path) -> None:
    memory, copied = Memory(), tmp_path / "journal.jsonl"
    copied.write_bytes(lines({"kind": "attempt", "attempt": 1, "t": 1.0}, {"kind": "step", "step": 1})[0])
    memory.objects[journal_segment(2, 0, 0)] = lines({"kind": "attempt", "attempt": 2, "t": 2.0}, {"kind": "step", "step": 1})[0]
    JournalCopy(copied, memory, 2).fetch()
    assert len(copied.read_bytes().splitlines()) == 4
    assert read_journal(copied).attempt == 2


def test_a_segment_that_was_changed_is_named(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "store"))
    send(storage, tmp_path, attempt=1, part=0, steps=[1, 2])
    name = journal_segment(1, 0, 0)
    text = storage.get(name)
    assert text is not None
    storage.put(name, text.replace(b'"step":2', b'"step":3'))
    with pytest.raises(JournalError, match=rf"store/{name}, line 3: checksum is"):
        JournalCopy(tmp_path / "copy.jsonl", storage, 1).fetch()
    assert not (tmp_path / "copy.jsonl").exists()
