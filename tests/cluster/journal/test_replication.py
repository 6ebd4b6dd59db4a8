"""Journals on storage from writer to copy: followed live, through losses of the storage; on a folder and on a local S3 (moto)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.journal.journal import JournalWriter, read_journal
from cluster.journal.object_store import Storage, join
from cluster.journal.replication import JournalCopy, JournalMirror
from tests.cluster.journal.segment_support import Flaky, Gate, send, until
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
