"""Where a trial's data is, and when it counts as changed."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock
from pyarrow import fs

from experiments.config.paths import runs_root
from experiments.datasets import scenes, texts
from tasks.sweep.dataset import DatasetError, build, is_built, resolve

REVISION = "0123456789abcdef0123456789abcdef01234567"


def fingerprint(uri: object) -> str:
    source = resolve({"dataset": str(uri)})
    assert source is not None and source.uri == str(uri) and source.tokenizer is None
    return source.fingerprint


def test_a_workload_that_reads_none_has_none() -> None:
    assert resolve({}) is None and resolve({"dataset": None}) is None
    assert is_built({})
    build({})
    assert not runs_root().exists()


@pytest.mark.parametrize(("name", "generator", "folder"), [("drawn", scenes, "scenes"), ("drawn-text", texts, "texts")])
@pytest.mark.parametrize(("rows", "held_out"), [(8, 64), (512, 64), (520, 65), (8192, 1024)])
def test_a_drawn_set_is_named_by_what_it_is_drawn_from(name: str, generator: Any, folder: str, rows: int, held_out: int) -> None:
    source = resolve({"dataset": name, "drawn_rows": rows})
    expected = generator.fingerprint(rows=rows, validation_rows=held_out, seed=0)
    assert source is not None and source.fingerprint == expected
    assert source.uri == str(runs_root() / "data" / f"{folder}-{expected}")
    assert source.tokenizer == f"{source.uri}/tokenizer"


def test_a_drawn_set_is_drawn_once_under_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[dict[str, int]] = []
    asked = {"dataset": "drawn", "drawn_rows": 8}

    def draw(folder: Path, **arguments: int) -> None:
        with pytest.raises(TimeoutError):
            FileLock(folder.with_suffix(".lock")).acquire(timeout=0)
        drawn.append(arguments)
        (folder / "tokenizer").mkdir(parents=True)  # the last that a generator writes

    monkeypatch.setattr(scenes, "build", draw)
    assert not is_built(asked)
    build(asked)
    build(asked)
    assert is_built(asked) and drawn == [{"rows": 8, "validation_rows": 64, "seed": 0}]


def test_a_set_whose_drawing_was_interrupted_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"dataset": "drawn", "drawn_rows": 8}
    drawn: list[Path] = []
    monkeypatch.setattr(scenes, "build", lambda folder, **_: drawn.append(folder))
    source = resolve(asked)
    assert source is not None
    Path(source.uri).mkdir(parents=True)
    (Path(source.uri) / "train.parquet").write_bytes(b"")
    assert not is_built(asked)
    build(asked)
    assert drawn == [Path(source.uri)]


def test_files_are_never_drawn(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"a")
    before = sorted(tmp_path.rglob("*"))
    assert is_built({"dataset": str(tmp_path)})
    build({"dataset": str(tmp_path)})
    assert sorted(tmp_path.rglob("*")) == before


def test_files_count_as_changed_by_name_size_and_time(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    train = folder / "deep" / "train.parquet"
    train.write_bytes(b"abc")
    os.utime(train, ns=(10**18, 10**18))
    seen = [fingerprint(folder)]
    assert fingerprint(folder) == seen[0]
    (folder / "README.md").write_text("no data")
    assert fingerprint(folder) == seen[0]

    train.write_bytes(b"abcd")
    os.utime(train, ns=(10**18, 10**18))
    seen.append(fingerprint(folder))  # size
    os.utime(train, ns=(10**18, 10**18 + 10**9))
    seen.append(fingerprint(folder))  # time
    train.rename(folder / "deep" / "other.parquet")
    seen.append(fingerprint(folder))  # name
    (folder / "more.parquet").write_bytes(b"")
    seen.append(fingerprint(folder))
    assert len(set(seen)) == 5


def test_one_file_is_a_data_set_too(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"a")
    (tmp_path / "b.parquet").write_bytes(b"b")
    assert len({fingerprint(tmp_path / "a.parquet"), fingerprint(tmp_path / "b.parquet"), fingerprint(tmp_path)}) == 3


def test_a_relative_path_is_the_same_data_as_its_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.parquet").write_bytes(b"a")
    monkeypatch.chdir(tmp_path)
    assert fingerprint("data") == fingerprint(tmp_path / "data") == fingerprint(f"file://{tmp_path}/data")


def test_what_is_not_there_or_holds_no_parquet_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"nowhere does not exist; give a folder of Parquet files, s3://, gs://, hf:// or 'drawn'"):
        resolve({"dataset": str(tmp_path / "nowhere")})
    (tmp_path / "a.csv").write_text("a")
    with pytest.raises(DatasetError, match=r"no \*\.parquet file there"):
        resolve({"dataset": str(tmp_path)})
    with pytest.raises(DatasetError, match=r"no \*\.parquet file there"):
        resolve({"dataset": str(tmp_path / "a.csv")})


def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(uri: str) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(fs, "FileSystem", SimpleNamespace(from_uri=refuse))
    with pytest.raises(DatasetError, match=r"dataset s3://bucket/data cannot be read: not yours"):
        resolve({"dataset": "s3://bucket/data"})


def test_a_set_on_the_hub_is_pinned_to_a_revision() -> None:
    pinned = f"hf://datasets/a/b@{REVISION}"
    assert fingerprint(pinned) != fingerprint(f"{pinned}/folder") != fingerprint(f"hf://datasets/a/b@{REVISION[::-1]}/folder")
    for loose in ("hf://datasets/a/b", "hf://datasets/a/b@main", f"hf://datasets/a/b@{REVISION[:39]}", f"hf://datasets/a/b@{REVISION}0/c"):
        with pytest.raises(DatasetError, match="pin the revision"):
            resolve({"dataset": loose})
