"""Storage that nodes and flow share: objects are whole, folders are sent once, and what a store's library raises names the store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from cluster.journal import object_store as module
from cluster.journal.object_store import Storage, StorageError, join, problem_with


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
        ("gs:", "the bucket is missing"),
        ("s3://key:secret@bucket/x", "holds a user name or password"),
        ("s3://key@bucket/x", "holds a user name or password"),
        ("s3://:secret@bucket/x", "holds a user name or password"),
        ("s3://bucket/x?secret_key=s", "holds credentials in its query"),
        ("s3://bucket/x?region=r&access_key=s", "holds credentials in its query"),
        ("s3://[bucket", "which is not a URI"),
    ],
)
def test_uris(uri: str, problem: str | None) -> None:
    found = problem_with(uri)
    assert (found is None) == (problem is None) and (problem or "") in (found or "")


def test_names_below_a_uri_keep_its_query() -> None:
    assert join("s3://b/p/?region=x", "a", "c") == "s3://b/p/a/c?region=x"
    assert join("/nfs/results//", "a") == "/nfs/results/a"
    assert join("/nfs") == "/nfs"


class Counting(Storage):
    """Writes down what is sent."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.sent: list[str] = []

    def put(self, name: str, data: bytes) -> None:
        self.sent.append(name)
        super().put(name, data)


def test_a_folder_is_sent_once_with_its_end_last(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "tokenizer").mkdir(parents=True)
    (source / "train.parquet").write_bytes(b"rows")
    (source / "tokenizer" / "t.json").write_bytes(b"{}")
    storage = Counting(str(tmp_path / "store"))
    storage.put_folder(source, "data/x")
    assert storage.sent == ["data/x/tokenizer/t.json", "data/x/train.parquet", "data/x/_complete"]
    assert storage.get("data/x/train.parquet") == b"rows" and storage.get("data/x/_complete") == b""
    storage.sent = []
    storage.put_folder(source, "data/x")
    assert storage.sent == []
    (tmp_path / "store" / "data" / "x" / "train.parquet").write_bytes(b"ro")  # a copy that was broken off, on a store without rename
    storage.put_folder(source, "data/x")
    assert storage.sent == ["data/x/train.parquet"]


def test_names_are_relative_and_of_files_only(tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}/store/")
    storage.put("a/b/c.json", b"123")
    storage.put("d", b"")
    assert storage.names() == {"a/b/c.json": 3, "d": 0}
    assert storage.names("a") == {"b/c.json": 3}
    assert storage.names("absent") == {}
    assert (tmp_path / "store" / "a" / "b" / "c.json").read_bytes() == b"123"


def test_an_object_in_a_folder_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, synced = Storage(str(tmp_path)), []
    storage.put("a", b"old")

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_size, (tmp_path / "a").read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    with open(tmp_path / "a", "rb") as reader:
        storage.put("a", b"newer")
        assert reader.read() == b"old", "who reads it meanwhile has the old one whole"
    assert synced[0] == (5, b"old"), "on the disk before it takes the name"
    assert [content for _, content in synced] == [b"old", b"newer"], "and then the folder"

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=rf"^storage {tmp_path}: \[Errno 28\] No space left on device: '{tmp_path}/a'$"):
        storage.put("a", b"newest")
    assert storage.get("a") == b"newer" and [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_a_store_says_is_one_short_line_without_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fail(uri: str) -> Any:
        asked.append(uri)
        raise ValueError("very\n  long " + "x" * 1000)

    monkeypatch.setattr(module, "_filesystem", fail)
    with pytest.raises(StorageError) as caught:
        Storage("s3://b/p?token=t").get("a")
    assert str(caught.value) == "storage s3://b/p: very long " + "x" * 290
    assert asked == ["s3://b/p?token=t"]


@pytest.mark.parametrize("error", [KeyError("a bug"), StorageError("said already")])
def test_what_is_no_failure_of_the_store_stays_what_it_is(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(uri: str) -> Any:
        raise error

    monkeypatch.setattr(module, "_filesystem", fail)
    with pytest.raises(type(error)) as caught:
        Storage("s3://b/p").get("a")
    assert caught.value is error


def test_a_store_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(module, "_filesystem", lambda uri: opened.append(uri) or (fs.LocalFileSystem(), uri))
    storage = Storage(str(tmp_path))
    storage.put("a", b"1")
    storage.get("a")
    assert opened == [str(tmp_path)]


@pytest.mark.parametrize(
    ("uri", "variables", "expected"),
    [
        ("s3://b/p/", {}, ("us-east-1", None, "https")),
        ("s3://b/p", {"AWS_DEFAULT_REGION": "d"}, ("d", None, "https")),
        ("s3://b/p", {"AWS_DEFAULT_REGION": "d", "AWS_REGION": "r"}, ("r", None, "https")),
        ("s3://b/p?region=q", {"AWS_REGION": "r"}, ("q", None, "https")),
        ("s3://b/p", {"AWS_ENDPOINT_URL": "http://all:1"}, ("us-east-1", "all:1", "http")),
        ("s3://b/p", {"AWS_ENDPOINT_URL": "http://all:1", "AWS_ENDPOINT_URL_S3": "https://own:2"}, ("us-east-1", "own:2", "https")),
        ("s3://b/p?endpoint_override=h:3", {"AWS_ENDPOINT_URL_S3": "http://own:2"}, ("us-east-1", "h:3", "https")),
        ("s3://b/p?scheme=http&endpoint_override=h:3", {}, ("us-east-1", "h:3", "http")),
        ("s3://b/p?scheme=http", {"AWS_ENDPOINT_URL": "https://all:1"}, ("us-east-1", "all:1", "http")),
    ],
)
def test_where_an_s3_is_and_how_long_it_may_take(
    monkeypatch: pytest.MonkeyPatch, uri: str, variables: dict[str, str], expected: tuple[str, str | None, str]
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    given: dict[str, Any] = {}
    monkeypatch.setattr(fs, "S3FileSystem", lambda **more: given.update(more) or "the store")
    assert module._filesystem(uri) == ("the store", "b/p")
    assert (given["region"], given["endpoint_override"], given["scheme"]) == expected
    assert (given["connect_timeout"], given["request_timeout"]) == (5.0, 20.0)
