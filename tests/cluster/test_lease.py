"""Who works on a sweep."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from filelock import FileLock

from cluster.lease import holder, is_held, name_holder, server_at


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
        ('{"pid": 7, "host": "here", "since": 0.0}', (7, "here", frozenset())),
        ('{"pid": 7, "host": "here", "servers": ["b:2", "a:1"]}', (7, "here", {"a:1", "b:2"})),
        ('{"pid": 7, "host": "here", "servers": 3}', None),
        ('{"pid": 7}', None),
        ('{"pid": "seven", "host": "here"}', None),
        ("[]", None),
        ("", None),
        ("{", None),
        (None, None),
    ],
)
def test_the_holder_is_who_the_file_names(tmp_path: Path, said: str | None, who: tuple[int, str, set[str]] | None) -> None:
    if said is not None:
        (tmp_path / ".holder.json").write_text(said)
    assert holder(tmp_path) == who


def test_who_holds_it_is_named_with_its_servers_and_without_their_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@far")
    monkeypatch.delenv("SWEEPBENCH_LOCAL_ADDRESS", raising=False)
    name_holder(tmp_path)
    assert holder(tmp_path) == (os.getpid(), os.uname().nodename, {"127.0.0.1:4200", "far:443"})
    assert "secret" not in (tmp_path / ".holder.json").read_text()


@pytest.mark.parametrize(
    ("address", "server"),
    [
        ("http://127.0.0.1:8265", "127.0.0.1:8265"),
        ("http://far/api", "far:80"),
        ("sqlite:////runs/mlflow.db", None),
        ("embedded", None),
        ("http://far:no", None),
        ("http://", None),
        ("", None),
    ],
)
def test_a_server_is_a_host_and_a_port(address: str, server: str | None) -> None:
    assert server_at(address) == server
