"""A new folder of results gets whole databases of Prefect and MLflow, and one that has a database keeps its own."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from cluster.stack import empty_database
from cluster.stack.empty_database import MLFLOW, PREFECT, EmptyDatabase
from experiments.config.errors import DamagedFile


@pytest.fixture
def some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the one that is kept would be."""
    path = tmp_path / "share" / "some.db"
    monkeypatch.setattr(EmptyDatabase, "kept", lambda database: path)
    return path


def never(path: Path) -> None:
    raise AssertionError("it was made anew")


def by_migration(path: Path) -> None:
    path.write_bytes(b"migrated")


def kept(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"tables")


def test_a_new_folder_gets_a_copy(some: Path, tmp_path: Path) -> None:
    kept(some)
    target = tmp_path / "new" / "home" / "some.db"
    assert EmptyDatabase("some", never).give(target)
    assert {path.name: path.read_bytes() for path in target.parent.iterdir()} == {"some.db": b"tables"}
    target.write_bytes(b"rows")
    assert some.read_bytes() == b"tables", "a copy, no link"


def test_a_database_that_is_there_stays(some: Path, tmp_path: Path) -> None:
    kept(some)
    target = tmp_path / "some.db"
    target.write_bytes(b"rows")
    database = EmptyDatabase("some", never)
    assert not database.copy(target) and not database.make(target) and not database.give(target)
    assert target.read_bytes() == b"rows"


@pytest.mark.parametrize("give", [EmptyDatabase.copy, EmptyDatabase.make])
def test_another_process_that_was_first_is_left_alone(
    some: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give: Callable[[EmptyDatabase, Path], bool]
) -> None:
    kept(some)
    target = tmp_path / "home" / "some.db"

    def meanwhile(*paths: Path) -> None:
        by_migration(paths[-1])
        target.write_bytes(b"of the other")

    monkeypatch.setattr("shutil.copyfile", meanwhile)
    assert not give(EmptyDatabase("some", meanwhile), target)
    assert {path.name: path.read_bytes() for path in target.parent.iterdir()} == {"some.db": b"of the other"}


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_hard_links_gets_one_too(some: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    kept(some)
    monkeypatch.setattr("os.link", Mock(side_effect=OSError(number, "no links here")))
    assert EmptyDatabase("some", never).give(tmp_path / "new" / "some.db")
    assert (tmp_path / "new" / "some.db").read_bytes() == b"tables"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["some.db"]


def test_another_error_is_raised(some: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(some)
    monkeypatch.setattr("os.link", Mock(side_effect=OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="full"):
        EmptyDatabase("some", never).give(tmp_path / "some.db")
    assert not (tmp_path / "some.db").exists()


def test_without_one_that_is_kept_it_is_made(some: Path, tmp_path: Path) -> None:
    target = tmp_path / "some.db"
    assert not EmptyDatabase("some", by_migration).copy(target) and not target.exists()
    assert EmptyDatabase("some", by_migration).give(target) and target.read_bytes() == b"migrated"


def test_a_migration_that_dies_leaves_no_database(some: Path, tmp_path: Path) -> None:
    def half(path: Path) -> None:
        path.write_bytes(b"half of the tables")
        raise KeyboardInterrupt

    target = tmp_path / "home" / "some.db"
    with pytest.raises(KeyboardInterrupt):
        EmptyDatabase("some", half).make(target)
    assert list(target.parent.iterdir()) == []


def test_it_belongs_to_one_version_of_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty_database, "version", lambda name: {"prefect": "3.99.1", "mlflow": "3.98.0"}[name])
    assert (PREFECT.kept().name, MLFLOW.kept().name) == ("prefect-3.99.1.db", "mlflow-3.98.0.db")


def test_mlflows_has_every_table_and_no_row(tmp_path: Path) -> None:
    """The experiment Default says where artifacts are, so it must not come from another folder."""
    from mlflow.store.db import utils

    path = tmp_path / "mlflow.db"
    assert MLFLOW.make(path)
    engine = utils.create_sqlalchemy_engine(f"sqlite:///{path}")
    assert utils._all_tables_exist(engine)
    engine.dispose()
    with closing(sqlite3.connect(path)) as database:
        rows = {name: database.execute(f"select count(*) from {name}").fetchone()[0] for name in ("experiments", "runs", "alembic_version")}
    assert rows == {"experiments": 0, "runs": 0, "alembic_version": 1}


def test_a_file_that_sqlite_cannot_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    MLFLOW.check(path)  # there is none
    path.touch()
    MLFLOW.check(path, thorough=True)  # empty: to SQLite a database without tables
    path.write_bytes(b"no database" + bytes(4096))
    with pytest.raises(DamagedFile) as caught:
        MLFLOW.check(path)
    assert str(caught.value) == (
        f"{path} is damaged (file is not a database); move it away: nothing measured is lost, "
        "`sweep resume ID` publishes each sweep again from its journals"
    )
    with pytest.raises(DamagedFile, match=r"nothing measured$"):
        PREFECT.check(path)


def test_damage_behind_the_first_page_is_found_by_a_thorough_look(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("create table metrics (key text)")
        database.executemany("insert into metrics values (?)", [("x" * 500,)] * 100)
    MLFLOW.check(path, thorough=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    MLFLOW.check(path)
    with pytest.raises(DamagedFile, match=r"mlflow\.db is damaged \("):
        MLFLOW.check(path, thorough=True)


def test_a_database_that_somebody_writes_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table metrics (key text)")
        database.execute("begin exclusive")
        MLFLOW.check(path, timeout_s=0.0)
