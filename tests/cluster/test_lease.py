"""Who works on a sweep."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from filelock import FileLock

from cluster.lease import holder, is_held


def test_a_lease_is_held_as_long_as_its_lock_is(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "no such sweep")
    assert not is_held(tmp_path) and list(tmp_path.iterdir()) == [], "who asks leaves nothing"
    with FileLock(tmp_path / ".lease"):
        assert is_held(tmp_path)
    assert not is_held(tmp_path), "its file stays and says nothing"


def test_who_asks_only_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".lease").touch()
    opened, open_ = list[int](), os.open
    monkeypatch.setattr(os, "open", lambda path, flags: (opened.append(flags), open_(path, flags))[1])
    assert not is_held(tmp_path)
    assert [flags & (os.O_ACCMODE | os.O_CREAT) for flags in opened] == [os.O_RDONLY], "another user's may be asked for too"


def test_a_lease_that_nobody_may_look_at_counts_as_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / ".lease").touch()
    assert not is_held(tmp_path)
    monkeypatch.setattr(os, "open", refuse)
    assert is_held(tmp_path)


def test_one_that_is_no_file_is_held_by_nobody(tmp_path: Path) -> None:
    (tmp_path / ".lease").mkdir()
    assert not is_held(tmp_path)


@pytest.mark.parametrize(
    ("said", "who"),
    [
        ('{"pid": 7, "host": "here", "since": 0.0}', (7, "here")),
        ('{"pid": 7}', None),
        ('{"pid": "seven", "host": "here"}', None),
        ("[]", None),
        ("", None),
        ("{", None),
        (None, None),
    ],
)
def test_the_holder_is_who_the_file_names(tmp_path: Path, said: str | None, who: tuple[int, str] | None) -> None:
    if said is not None:
        (tmp_path / ".holder.json").write_text(said)
    assert holder(tmp_path) == who
