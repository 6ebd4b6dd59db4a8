"""Which PostgreSQL is used, where its files are, what is said before anything starts. A real one: tests/integration/test_postgresql.py."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from cluster.stack import control, postgresql, settings
from cluster.stack.components import Component, components
from cluster.stack.errors import StackError
from cluster.stack.settings import PORTS, POSTGRESQL, Settings

USER = 1234
SAYS = "#!/bin/sh\necho 'postgres (PostgreSQL) {version}.4 (Debian 12)'\n"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Debian's folder of versions, empty; nothing on PATH; an ordinary user."""
    monkeypatch.setattr(postgresql, "_FOLDERS", tmp_path / "postgresql")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(os, "getuid", lambda: USER)
    return tmp_path / "postgresql"


def install(folders: Path, version: int) -> Path:
    folder = folders / str(version) / "bin"
    folder.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (folder / name).write_text(SAYS.format(version=version))
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def stack(tmp_path: Path) -> Settings:
    return Settings(tmp_path, tmp_path / "runs", {name: port for name, (_, port) in PORTS.items()}, POSTGRESQL)


def made_by(stack: Settings, version: int) -> None:
    stack.postgresql_data.mkdir(parents=True)
    (stack.postgresql_data / "PG_VERSION").write_text(f"{version}\n")


def test_a_new_cluster_is_of_the_newest_version_and_an_old_one_of_its_own(folders: Path, stack: Settings) -> None:
    assert postgresql.binaries(stack) is None
    old, new = install(folders, 9), install(folders, 17)
    assert postgresql.binaries(stack) == new
    made_by(stack, 9)
    assert postgresql.binaries(stack) == old


def test_what_is_on_path_is_taken_where_there_are_no_folders_of_debian(folders: Path, stack: Settings, monkeypatch: Any) -> None:
    elsewhere = install(folders.parent / "elsewhere", 16)
    monkeypatch.setenv("PATH", str(elsewhere))
    assert postgresql.binaries(stack) == elsewhere


def test_missing_binaries_are_named_with_the_command_that_installs_them(folders: Path, stack: Settings) -> None:
    with pytest.raises(StackError, match=r"^PostgreSQL is not installed: .*apt install postgresql; or DATABASE=sqlite$"):
        postgresql.prepare(stack)
    made_by(stack, 15)
    with pytest.raises(StackError, match=r"PostgreSQL 15, which made .*/\.postgresql, is not installed: .*apt install postgresql-15;"):
        postgresql.prepare(stack)


def test_data_of_another_version_are_left_alone(folders: Path, stack: Settings, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(install(folders.parent / "elsewhere", 16)))
    made_by(stack, 15)
    with pytest.raises(StackError, match=r"was made by PostgreSQL 15, and here is 16: apt install postgresql-15, or dump"):
        postgresql.prepare(stack)


def test_a_folder_of_something_else_is_left_alone(folders: Path, stack: Settings) -> None:
    install(folders, 17)
    stack.postgresql_data.mkdir(parents=True)
    (stack.postgresql_data / "thesis.txt").write_text("mine")
    with pytest.raises(StackError, match="holds no PostgreSQL cluster and is not empty"):
        postgresql.prepare(stack)
    assert (stack.postgresql_data / "thesis.txt").read_text() == "mine"


def test_a_failed_initdb_says_why_and_leaves_no_cluster(folders: Path, stack: Settings, monkeypatch: Any) -> None:
    folder = install(folders, 17)
    (folder / "initdb").write_text("#!/bin/sh\necho initdb: no space left >&2\nexit 3\n")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("me", "x", USER, USER, "", "/", "/bin/sh")))
    with pytest.raises(StackError, match=r"initdb did not make PostgreSQL's files, status 3:\n  initdb: no space left"):
        postgresql.prepare(stack)
    assert not stack.postgresql_data.exists()


def test_root_runs_it_as_another_user(folders: Path, stack: Settings, monkeypatch: Any) -> None:
    install(folders, 17)
    assert postgresql.run_as() == []
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert postgresql.run_as() == ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
    assert stack.postgresql_data.parent == Path("/var/lib/postgresql"), "runs may be closed to that user"

    def nobody(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", nobody)
    with pytest.raises(StackError, match=r"does not run as root, and there is no user postgres to run it as: .*apt install postgresql"):
        postgresql.prepare(stack)


def test_a_user_without_a_name_is_told_so(folders: Path, stack: Settings, monkeypatch: Any) -> None:
    install(folders, 17)

    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(StackError, match="user id 1234 has none"):
        postgresql.prepare(stack)


def test_missing_driver_is_said_before_anything_is_made(folders: Path, stack: Settings, monkeypatch: Any) -> None:
    stack.state.mkdir(parents=True)
    monkeypatch.setattr(control, "find_spec", lambda name: None)
    with pytest.raises(StackError, match=r"MLflow needs psycopg2 .*: make setup; or DATABASE=sqlite"):
        control._prepare(stack, print)
    assert not stack.postgresql_data.exists()


def test_the_variable_chooses_and_else_what_is_there(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "getuid", lambda: USER)
    assert settings.load(tmp_path).database == "sqlite"
    made_by(settings.load(tmp_path), 17)
    assert settings.load(tmp_path).database == "postgresql"
    monkeypatch.setenv("SWEEPBENCH_DATABASE", "sqlite")
    assert settings.load(tmp_path).database == "sqlite"
    monkeypatch.setenv("SWEEPBENCH_DATABASE", "oracle")
    with pytest.raises(StackError, match=r"^SWEEPBENCH_DATABASE='oracle' is unknown: give sqlite or postgresql$"):
        settings.load(tmp_path)


def test_both_servers_are_pointed_at_it_without_a_password(stack: Settings) -> None:
    parts = {part.name: part for part in components(stack)}
    assert list(parts) == ["postgresql", "prefect", "mlflow", "ray", "worker"]
    for name, driver in (("prefect", "asyncpg"), ("mlflow", "psycopg2")):
        assert parts[name].needs == ("postgresql",)
        url = make_url(next(argument for argument in parts[name].command if argument.startswith("postgresql")))
        assert (url.get_driver_name(), url.username, url.password, url.host, url.database) == (driver, name, None, None, name)
        assert url.query == {"host": str(stack.postgresql_socket), "port": "5432"}
    assert "listen_addresses=" in parts["postgresql"].command
    of_sqlite = {part.name: part for part in components(replace(stack, database="sqlite"))}
    assert "postgresql" not in of_sqlite
    assert of_sqlite["prefect"].command != parts["prefect"].command, "so that a change of the database restarts it"


def test_a_socket_has_room_for_its_name_however_long_the_path_of_runs(stack: Settings) -> None:
    long = replace(stack, runs=Path("/" + "x" * 200))
    assert len(f"{long.postgresql_socket}/.s.PGSQL.5432.lock") <= 107
    assert long.postgresql_socket != stack.postgresql_socket


def test_the_folder_of_a_component_is_empty_and_its_users_alone(tmp_path: Path) -> None:
    part = Component("one", "ONE", [], lambda _: True, folder=tmp_path / "own")
    (tmp_path / "own").mkdir(mode=0o755)
    (tmp_path / "own" / "stale").touch()
    control._make_folder(part)
    assert not list((tmp_path / "own").iterdir())
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "own").symlink_to(tmp_path / "theirs")
    with pytest.raises(StackError, match="own is not a folder of ours; remove it, ONE needs it"):
        control._make_folder(Component("one", "ONE", [], lambda _: True, folder=tmp_path / "own"))
