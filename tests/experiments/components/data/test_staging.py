"""Copies of remote data sets: a version each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from experiments.components.data import staging
from experiments.components.data.listing import fingerprint
from experiments.components.workload import DataError

URI = "s3://bucket/set"
SPLITS = ("train", "validation")


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder behind URI, with two shards and a validation file."""
    folder = tmp_path / "remote"
    folder.mkdir()
    monkeypatch.setenv("SWEEPBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(staging, "_filesystem", lambda uri: (fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "remote"))
    for name in ("train-0", "train-1", "validation"):
        put(folder / f"{name}.parquet", name, 1)
    return folder


def put(path: Path, text: str, second: int) -> None:
    path.write_text(text)
    os.utime(path, (second, second))


def version(remote: Path) -> str:
    found = fingerprint(fs.SubTreeFileSystem(str(remote.parent), fs.LocalFileSystem()), "remote")
    assert found is not None
    return found


def copied(remote: Path) -> dict[str, str]:
    folder = staging.local_folder(URI, SPLITS, version(remote))
    return {path.stem: path.read_text() for path in folder.glob("*.parquet")}


def test_an_object_that_was_replaced_at_equal_size_is_copied_again(remote: Path) -> None:
    assert copied(remote)["train-0"] == "train-0"
    put(remote / "train-0.parquet", "TRAIN-0", 2)
    assert copied(remote) == {"train-0": "TRAIN-0", "train-1": "train-1", "validation": "validation"}


def test_a_shard_that_was_removed_is_not_read(remote: Path) -> None:
    assert set(copied(remote)) == {"train-0", "train-1", "validation"}
    (remote / "train-1.parquet").unlink()
    assert set(copied(remote)) == {"train-0", "validation"}


def test_what_did_not_change_is_neither_copied_again_nor_stored_twice(remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = staging.local_folder(URI, SPLITS, version(remote))
    first = (before / "validation.parquet").stat()
    put(remote / "train-0.parquet", "other", 2)
    copies: list[Any] = []
    real = staging.shutil.copyfileobj
    monkeypatch.setattr(staging.shutil, "copyfileobj", lambda *arguments: (copies.append(arguments), real(*arguments)))
    after = staging.local_folder(URI, SPLITS, version(remote))
    assert after != before and len(copies) == 1
    assert (after / "validation.parquet").stat().st_ino == first.st_ino
    assert (before / "train-0.parquet").read_text() == "train-0", "a sweep of the earlier version still reads that"
    staging.local_folder(URI, SPLITS, version(remote))
    assert len(copies) == 1


def test_files_that_are_no_longer_those_of_the_plan_are_refused(remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = version(remote)
    put(remote / "train-0.parquet", "TRAIN-0", 2)
    with pytest.raises(
        DataError, match=rf"^{URI} has changed since the sweep was planned \({planned} -> {version(remote)}\): `sweep resume`"
    ):
        staging.local_folder(URI, SPLITS, planned)
    planned, real = version(remote), staging.copy

    def copy_while_it_changes(*arguments: Any) -> Path:
        put(remote / "train-1.parquet", "TRAIN-1", 3)
        return real(*arguments)

    monkeypatch.setattr(staging, "copy", copy_while_it_changes)
    with pytest.raises(DataError, match="has changed since the sweep was planned"):
        staging.local_folder(URI, SPLITS, planned)
