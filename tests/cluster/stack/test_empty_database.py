"""A new folder of results gets a copy of an empty Prefect database, and one that has a database keeps its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.stack import empty_database
from cluster.stack.empty_database import copy_to, kept


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "share" / "prefect.db"
    monkeypatch.setattr(empty_database, "kept", lambda: path)
    return path


def made(empty: Path) -> None:
    empty.parent.mkdir()
    empty.write_bytes(b"tables")


def test_a_new_home_gets_a_copy(empty: Path, tmp_path: Path) -> None:
    made(empty)
    home = tmp_path / "new" / "home"
    assert copy_to(home)
    assert {path.name: path.read_bytes() for path in home.iterdir()} == {"prefect.db": b"tables"}
    (home / "prefect.db").write_bytes(b"rows")
    assert empty.read_bytes() == b"tables", "a copy, no link"


def test_a_home_with_a_database_keeps_it(empty: Path, tmp_path: Path) -> None:
    made(empty)
    (tmp_path / "prefect.db").write_bytes(b"rows")
    assert not copy_to(tmp_path)
    assert (tmp_path / "prefect.db").read_bytes() == b"rows"


def test_another_server_that_was_first_is_left_alone(empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(empty)

    def meanwhile(source: Path, copy: Path) -> None:
        copy.write_bytes(b"tables")
        (tmp_path / "prefect.db").write_bytes(b"of the other")

    monkeypatch.setattr("shutil.copyfile", meanwhile)
    assert not copy_to(tmp_path)
    assert (tmp_path / "prefect.db").read_bytes() == b"of the other"


def test_without_one_prefect_makes_its_own(empty: Path, tmp_path: Path) -> None:
    assert not copy_to(tmp_path)
    assert not list(tmp_path.glob("prefect.db"))


def test_it_belongs_to_one_version_of_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty_database, "version", lambda name: {"prefect": "3.99.1"}[name])
    assert kept().name == "prefect-3.99.1.db"
