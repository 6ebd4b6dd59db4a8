"""A growing journal is sent in segments: each unchanged until the storage has it, at once where asked for, and a loss is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.journal import replication
from cluster.journal.journal import JournalWriter, read_journal
from cluster.journal.object_store import StorageError
from cluster.journal.replication import JournalMirror, SegmentReader
from cluster.trial_layout import journal_segment
from tests.cluster.journal.segment_support import Flaky, Gate, Memory, lines, until


class Time:
    """Virtual seconds, which pass while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@pytest.mark.parametrize(("interval_s", "sleeps"), [(3600.0, [5.0] * 3), (4.0, [4.0] * 4)])
def test_storage_that_stays_away_is_named_with_where_the_journal_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval_s: float, sleeps: list[float]
) -> None:
    monkeypatch.setattr(replication, "time", clock := Time())
    flaky = Flaky(str(tmp_path / "store"))
    flaky.refused = 1_000
    with JournalWriter(tmp_path / "journal.jsonl", 1) as journal:
        journal.append("note", text="kept")
    mirror = JournalMirror(tmp_path / "journal.jsonl", flaky, 1, interval_s=3600)  # its thread sends nothing by itself
    mirror._interval_s = interval_s
    with pytest.raises(StorageError, match=rf"refused; the journal is whole in {tmp_path}/journal\.jsonl on {os.uname().nodename}$"):
        mirror.close(patience_s=12.0)
    assert clock.slept == sleeps and mirror.failures == len(sleeps) + 1
    assert str(mirror.error) == "refused"
    assert read_journal(tmp_path / "journal.jsonl").notes


def test_a_segment_whose_reply_was_lost_is_sent_again_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal has grown meanwhile, and a reader may have taken the segment already: what it has of it must stay all of it."""
    monkeypatch.setattr(replication, "time", Time())
    path, memory = tmp_path / "journal.jsonl", Memory()
    first, crc = lines({"kind": "attempt", "attempt": 1}, {"kind": "step", "step": 1})
    second, crc = lines({"kind": "step", "step": 2}, crc=crc)
    path.write_bytes(first)

    def lose_the_first_reply(name: str) -> None:
        if len(memory.sent) == 1:
            with open(path, "ab") as file:
                file.write(second + b'{"kind":"torn')
            raise StorageError("the reply was lost")

    monkeypatch.setattr(memory, "after_put", lose_the_first_reply)
    mirror = JournalMirror(path, memory, attempt=3, part=2, interval_s=3600)
    mirror.close()
    assert memory.sent == [(journal_segment(3, 2, 0), first), (journal_segment(3, 2, 0), first), (journal_segment(3, 2, 1), second)]
    assert journal_segment(3, 2, 1) == "journal-a3/2-00000001.jsonl"
    assert (mirror.failures, mirror.error) == (1, None)


def test_a_mirror_sends_by_itself_and_goes_on_after_a_failure(tmp_path: Path) -> None:
    flaky = Flaky(str(tmp_path / "store"))
    flaky.refused = 2
    with JournalWriter(tmp_path / "journal.jsonl", 1):
        mirror = JournalMirror(tmp_path / "journal.jsonl", flaky, 1, interval_s=0.001)
        until(lambda: flaky.get(journal_segment(1, 0, 0)) is not None)
        until(lambda: mirror.error is None)
        assert mirror.failures == 2
        mirror.close()
        assert set(flaky.names()) == {journal_segment(1, 0, 0)}, "nothing new is no segment"


def test_what_a_journal_has_is_sent_at_once_where_its_writer_may_be_killed(tmp_path: Path) -> None:
    storage = Flaky(str(tmp_path / "store"))
    path, state = tmp_path / "journal.jsonl", tmp_path / "state"
    with JournalWriter(path, 1) as journal:
        mirror = JournalMirror(path, storage, 1, interval_s=3600.0)  # it sends only when told to
        journal.append("note", text="measured")
        journal.flush()
        assert mirror.flush(60.0, also={"state": state}), "a file that is not there yet is left out"
        assert [record["kind"] for record in SegmentReader(storage, 1).poll()] == ["attempt", "note"]
        state.write_bytes(b"so far")
        assert mirror.flush(60.0, also={"state": state})
        assert storage.get("state") == b"so far"
        assert storage.names() == {journal_segment(1, 0, 0): path.stat().st_size, "state": 6}, "nothing new is no segment"
    mirror.close()


def test_a_flush_that_the_storage_refuses_is_tried_again(tmp_path: Path) -> None:
    storage = Flaky(str(tmp_path / "store"))
    (tmp_path / "state").write_bytes(b"so far")
    with JournalWriter(tmp_path / "journal.jsonl", 1):
        storage.refused = 3
        mirror = JournalMirror(tmp_path / "journal.jsonl", storage, 1, interval_s=0.001)
        assert mirror.flush(60.0, also={"state": tmp_path / "state"}) and storage.get("state") == b"so far"
        assert mirror.failures == 3
        assert not mirror._flushes, "it is done once"
    mirror.close()


@pytest.mark.parametrize("asked_first", [True, False], ids=["of the flush", "of the thread before it"])
def test_a_flush_waits_no_longer_than_told_for_a_storage_that_does_not_answer(tmp_path: Path, asked_first: bool) -> None:
    storage = Flaky(str(tmp_path / "store"))
    storage.gate = gate = Gate()
    (tmp_path / "state").write_bytes(b"so far")
    with JournalWriter(tmp_path / "journal.jsonl", 1):
        mirror = JournalMirror(tmp_path / "journal.jsonl", storage, 1, interval_s=3600.0 if asked_first else 0.001)
        assert asked_first or gate.reached.wait(60)
        assert not mirror.flush(0.1, also={"state": tmp_path / "state"})
        assert gate.reached.wait(60) and not gate.opened.is_set() and storage.names() == {}, "it came back while nothing was answered"
        gate.opened.set()
        until(lambda: storage.get("state") == b"so far")  # what was not sent in time follows
    mirror.close()


def test_a_storage_that_never_answers_is_named_at_the_end(tmp_path: Path) -> None:
    storage = Flaky(str(tmp_path / "store"))
    storage.gate = gate = Gate()
    with JournalWriter(tmp_path / "journal.jsonl", 1):
        mirror = JournalMirror(tmp_path / "journal.jsonl", storage, 1, interval_s=0.001)
        assert gate.reached.wait(60)
    with pytest.raises(
        StorageError, match=rf"^storage {tmp_path}/store: does not answer; the journal is whole in {tmp_path}/journal\.jsonl"
    ):
        mirror.close(0.1)
    gate.opened.set()
