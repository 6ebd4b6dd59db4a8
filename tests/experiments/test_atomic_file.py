"""A file is written whole or not at all, whatever ends the writer."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from experiments.atomic_file import atomic_file, atomic_write, remove_temporaries


def test_publish_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "result.json"
    atomic_write(target, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic_write(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_publish_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is on the disk before it takes the name, and the name is before publish returns."""
    target = tmp_path / "result.json"
    atomic_write(target, "old")
    synced = []

    def fsync(descriptor: int) -> None:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append((folder, os.path.samestat(os.fstat(descriptor), tmp_path.stat()), os.fstat(descriptor).st_size, target.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    atomic_write(target, "nëw")
    (file, folder) = synced
    assert (file[0], file[2], file[3]) == (False, len("nëw".encode()), "old")
    assert folder[:2] == (True, True) and folder[3] == "nëw"
    assert target.read_bytes() == "nëw".encode()


def test_publish_leaves_no_descriptor_open(tmp_path: Path) -> None:
    def opened() -> list[str]:
        """Of this test's folder: libraries that other tests use in this process open and close files of their own at any time."""
        found = list[str]()
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(str(descriptor.readlink()))
        return [name for name in found if name.startswith(str(tmp_path))]

    with open(tmp_path / "b", "w"):
        assert opened() == [str(tmp_path / "b")]
    atomic_write(tmp_path / "a", "text")
    assert opened() == []


def test_what_killed_writers_of_a_file_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".a.json.0f1e2d3c.tmp", ".a.json.11111111.tmp", ".b.json.0f1e2d3c.tmp", "a.json", ".a.json"):
        (tmp_path / name).touch()
    remove_temporaries(tmp_path / "a.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.json", ".b.json.0f1e2d3c.tmp", "a.json"]


@pytest.mark.parametrize(
    ("error", "filename"),
    [(OSError(28, "No space left"), "{path}"), (OSError(28, "No space left", "/another"), "/another"), (OSError("image"), None)],
    ids=["of a write", "of another file", "of no system call"],
)
def test_an_error_of_writing_names_the_file(tmp_path: Path, error: OSError, filename: str | None) -> None:
    def fail(_: Path) -> None:
        raise error

    with pytest.raises(OSError) as caught:
        atomic_file(tmp_path / "result.json", fail)
    assert caught.value is error
    assert caught.value.filename == (filename and filename.format(path=tmp_path / "result.json"))
    assert list(tmp_path.iterdir()) == []
