"""Journals on storage: sent in segments, read live, through losses of the storage; on a folder and on a local S3 (moto)."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.journal import replication
from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalWriter, read_journal
from cluster.journal.lines import encode
from cluster.journal.object_store import Storage, StorageError, join
from cluster.journal.replication import JournalCopy, JournalMirror, SegmentReader
from cluster.trial_layout import journal_segment
from tests.s3_support import s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as uri:
        yield uri


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    if request.param == "folder":
        return Storage(str(tmp_path / "store"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return Storage(join(request.getfixturevalue("s3"), tmp_path.name))


class Gate:
    """Holds up whoever comes, until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()


class Flaky(Storage):
    """Takes an object, says that it did not, and stores nothing, as often as told. `gate`: does not answer until it is opened."""

    lost_replies = refused = 0
    gate: Gate | None = None

    def put(self, name: str, data: bytes) -> None:
        if gate := self.gate:
            gate.reached.set()
            assert gate.opened.wait(60)
        if self.refused > 0:
            self.refused -= 1
            raise StorageError("refused")
        super().put(name, data)
        if self.lost_replies > 0:
            self.lost_replies -= 1
            raise StorageError("the reply was lost")


def test_objects_are_whole_and_named(storage: Storage, tmp_path: Path) -> None:
    assert storage.get("a/b.json") is None and storage.names() == {}
    storage.put("a/b.json", b"one")
    storage.put("a/b.json", b"two!")
    assert storage.get("a/b.json") == b"two!"
    assert storage.names("a") == {"b.json": 4}
    for name, data in (("trace.json.gz", gzip.compress(b"{}")), ("no.gz", b"not packed")):
        storage.put(name, data)
        assert storage.get(name) == data and storage.names()[name] == len(data), "bytes are kept as they are, whatever they are called"
    source = tmp_path / "source"
    (source / "tokenizer").mkdir(parents=True)
    (source / "train.parquet").write_bytes(b"rows")
    (source / "tokenizer" / "t.json").write_bytes(b"{}")
    storage.put_folder(source, "data/x")
    storage.put_folder(source, "data/x")
    assert storage.names("data/x") == {"train.parquet": 4, "tokenizer/t.json": 2, "_complete": 0}


def test_a_journal_is_followed_live_and_survives_the_loss_of_its_storage(storage: Storage, tmp_path: Path) -> None:
    flaky = Flaky(storage.uri)
    path, copied = tmp_path / "node" / "journal.jsonl", tmp_path / "flow" / "journal.jsonl"
    with JournalWriter(path, 1, interval=0.01) as journal:
        mirror = JournalMirror(path, flaky, 1, interval_s=0.02)
        copy = JournalCopy(copied, storage, 1)
        journal.append("step", step=1, loss=0.1)
        until(lambda: len(fetched(copy)) == 1)
        flaky.refused, flaky.lost_replies = 4, 0
        journal.append("step", step=2, loss=float("nan"))
        until(lambda: flaky.refused == 0)
        flaky.lost_replies = 2  # an object that is there is sent again: the same bytes
        journal.append("step", step=3, loss=0.3)
        until(lambda: flaky.lost_replies == 0)
        flaky.gate = gate = Gate()
        journal.append("step", step=4, loss=0.25)
        assert gate.reached.wait(60)
        for step in range(5, 200):
            journal.append("step", step=step, loss=1 / step)  # no step waits for the storage: it does not answer now
        journal.flush()
        assert max(fetched(copy)) < 4
        gate.opened.set()
    mirror.close()
    assert mirror.failures == 6 and mirror.error is None  # the faults fired
    assert fetched(copy) == list(range(1, 200))
    assert read_journal(copied).steps[:3] == read_journal(path).steps[:3]


def fetched(copy: JournalCopy) -> list[int]:
    copy.fetch()
    return [step["step"] for step in read_journal(copy.path).steps]


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


class Memory(Storage):
    """Objects in memory. `after_put` and `before_get` are called with the name."""

    def __init__(self) -> None:
        super().__init__("memory://store?secret")
        self.objects: dict[str, bytes] = {}
        self.sent: list[tuple[str, bytes]] = []

    def put(self, name: str, data: bytes) -> None:
        self.objects[name] = data
        self.sent.append((name, data))
        self.after_put(name)

    def get(self, name: str) -> bytes | None:
        self.before_get(name)
        return self.objects.get(name)

    def after_put(self, name: str) -> None: ...

    def before_get(self, name: str) -> None: ...


def lines(*records: dict[str, object], crc: int = 0) -> tuple[bytes, int]:
    """A segment of these records, whose checksums go on from `crc`; and its last checksum."""
    text = b""
    for record in records:
        line, crc = encode(record, crc)
        text += line
    return text, crc


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


def segments(count: int) -> dict[str, bytes]:
    """An attempt's journal of `count` steps, a segment for each record."""
    objects, crc = {}, 0
    records = [{"kind": "attempt", "attempt": 1, "t": 1.0}, *({"kind": "step", "step": number} for number in range(1, count + 1))]
    for number, record in enumerate(records):
        objects[journal_segment(1, 0, number)], crc = lines(record, crc=crc)
    return objects


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


def test_attempts_and_parts_follow_each_other_and_a_dead_flows_copy_is_gone_on_with(tmp_path: Path) -> None:
    storage, copied = Storage(str(tmp_path / "store")), tmp_path / "flow" / "journal.jsonl"
    send(storage, tmp_path, attempt=1, part=0, steps=[1, 2])
    JournalCopy(copied, storage, 1).fetch()
    send(storage, tmp_path, attempt=2, part=0, steps=[], note="searched")
    JournalCopy(copied, storage, 2).fetch()
    with open(copied, "ab") as file:
        file.write(b'{"kind":"st')  # a flow that was killed while it wrote
    send(storage, tmp_path, attempt=2, part=1, steps=[1, 2, 3])
    again = JournalCopy(copied, storage, 2)
    again.fetch()
    before = copied.read_bytes()
    again.fetch()
    JournalCopy(copied, storage, 2).fetch()
    assert copied.read_bytes() == before  # nothing twice
    journal = read_journal(copied)
    assert (journal.attempt, [step["step"] for step in journal.steps]) == (2, [1, 2, 3])
    kinds = [json.loads(line)["kind"] for line in copied.read_text().splitlines()]
    assert kinds == ["attempt", "step", "step", "close", "attempt", "note", "close", "attempt", "step", "step", "step", "close"]


def send(storage: Storage, folder: Path, attempt: int, part: int, steps: list[int], note: str | None = None) -> None:
    path = folder / f"node-{attempt}-{part}" / "journal.jsonl"
    with JournalWriter(path, attempt) as journal:
        if note:
            journal.append("note", text=note)
        for step in steps:
            journal.append("step", step=step)
    JournalMirror(path, storage, attempt, part).close()


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


def until(condition: object, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.01)
