"""Journals on storage: sent in segments, read live, through losses of the storage; on a folder and on a local S3 (moto)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.journal.journal import JournalError, JournalWriter, read_journal
from cluster.journal.object_store import Storage, StorageError, join, problem_with
from cluster.journal.replication import JournalCopy, JournalMirror
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


class Flaky(Storage):
    """Takes an object, says that it did not, and stores nothing, as often as told."""

    lost_replies = refused = 0

    def put(self, name: str, data: bytes) -> None:
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
        begin = time.monotonic()
        for step in range(4, 200):
            journal.append("step", step=step, loss=1 / step)
        assert time.monotonic() - begin < 0.2  # no step waits for the storage
    mirror.close()
    assert mirror.failures == 6 and mirror.error is None  # the faults fired
    assert fetched(copy) == list(range(1, 200))
    assert read_journal(copied).steps[:3] == read_journal(path).steps[:3]


def fetched(copy: JournalCopy) -> list[int]:
    copy.fetch()
    return [step["step"] for step in read_journal(copy.path).steps]


def test_storage_that_stays_away_is_named_with_where_the_journal_is(tmp_path: Path) -> None:
    flaky = Flaky(str(tmp_path / "store"))
    with JournalWriter(tmp_path / "journal.jsonl", 1) as journal:
        flaky.refused = 1_000
        mirror = JournalMirror(tmp_path / "journal.jsonl", flaky, 1, interval_s=0.01)
        journal.append("note", text="kept")
    with pytest.raises(StorageError, match=rf"refused; the journal is whole in {tmp_path}/journal\.jsonl on "):
        mirror.close(patience_s=0.05)
    assert read_journal(tmp_path / "journal.jsonl").notes


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
    assert kinds == ["attempt", "step", "step", "attempt", "note", "attempt", "step", "step", "step"]


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


def test_a_storage_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    away = Storage("s3://bucket/x?scheme=http&endpoint_override=127.0.0.1:9")
    with pytest.raises(StorageError, match=r"storage s3://bucket/x: .*"):
        away.put("a", b"")
    with pytest.raises(StorageError, match="storage"):
        away.get("a")


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("/nfs/results", None),
        ("file:///nfs/results", None),
        ("s3://bucket/prefix?region=eu-west-1", None),
        ("gs://bucket", None),
        ("results", "neither a path from / nor"),
        ("ftp://host/x", "neither a path from / nor"),
        ("s3:///x", "the bucket is missing"),
        ("s3://key:secret@bucket/x", "holds credentials"),
        ("s3://bucket/x?secret_key=s", "holds credentials"),
    ],
)
def test_uris(uri: str, problem: str | None) -> None:
    found = problem_with(uri)
    assert (found is None) == (problem is None) and (problem or "") in (found or "")


def test_names_below_a_uri_keep_its_query() -> None:
    assert join("s3://b/p/?region=x", "a", "c") == "s3://b/p/a/c?region=x"


def until(condition: object, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.01)
