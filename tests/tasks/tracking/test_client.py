"""The connection to MLflow: what is there before a client is made."""

from __future__ import annotations

import socket
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import mlflow.exceptions
import mlflow.tracking
import pytest

from experiments.config.errors import DamagedFile
from experiments.config.paths import runs_root
from tasks.tracking import client as module
from tasks.tracking.client import check_database, connect, no_answer, shown, why


class Client:
    """In place of MLflow's, which makes its database table by table, where it is to be, if it finds none."""

    def __init__(self, tracking_uri: str) -> None:
        self.tables = _tables(Path(tracking_uri.removeprefix("sqlite:///")))

    def search_experiments(self, max_results: int) -> list[Any]:
        return []


def _tables(path: Path) -> set[str]:
    if not path.exists():
        return set()
    with closing(sqlite3.connect(path)) as database:
        return {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}


def test_a_client_finds_a_whole_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill while a client makes one in place leaves a folder whose sweeps can never be published."""
    monkeypatch.setattr(mlflow.tracking, "MlflowClient", Client)
    assert not (runs_root() / "mlflow.db").exists()
    client: Any = connect()
    assert {"experiments", "runs", "metrics", "alembic_version"} <= client.tables
    assert (runs_root() / "mlflow.db").exists()


def test_a_relative_database_is_of_the_working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once there, it was an error of pathlib's."""
    monkeypatch.setattr(mlflow.tracking, "MlflowClient", Client)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mine.db")
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        client: Any = connect()
        assert "runs" in client.tables and (tmp_path / "mine.db").exists()


def test_a_server_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow.tracking, "MlflowClient", Client)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    client: Any = connect()
    assert client.tables == set() and not (runs_root() / "mlflow.db").exists()


def test_a_damaged_database_is_named_before_mlflow_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow.tracking, "MlflowClient", None)
    path = runs_root() / "mlflow.db"
    path.parent.mkdir()
    path.write_bytes(b"no database" + bytes(4096))
    with pytest.raises(DamagedFile, match=f"^{path} is damaged"):
        connect()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    check_database(thorough=True)  # it is the server's then


def test_a_server_that_cannot_be_reached_is_its_address_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow's error held those of requests and urllib3, and was cut within them."""
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{bound.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@{at}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        with pytest.raises(mlflow.exceptions.MlflowException) as raised:
            connect().get_experiment_by_name("bert")
    assert "Max retries exceeded" in str(raised.value)
    assert why(raised.value) == f"http://{at}: Connection refused"
    assert why(TimeoutError("timed out")) == f"http://{at}: timed out"
    assert why(ValueError("no such run\nand more")) == "no such run"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mine.db")
    assert why(ConnectionError("database is locked")) == "database is locked"


@pytest.mark.parametrize(("reply", "speaks"), [("HTTP/1.0 200 OK", True), ("HTTP/1.0 401 Unauthorized", True), ("SSH-2.0", False)])
def test_a_server_answers_also_where_it_refuses(reply: str, speaks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ASK_S", 60.0)  # a thread of a busy machine may answer late
    asked = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Host"])
            self.wfile.write(f"{reply}\r\n\r\n".encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        problem = no_answer(f"http://me:secret@127.0.0.1:{server.server_port}/")
        thread.join()
        assert asked == [f"127.0.0.1:{server.server_port}"]
    assert (problem is None) == speaks


def test_where_nothing_listens_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # of the network, and not of loopback
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert no_answer(f"http://127.0.0.1:{bound.getsockname()[1]}") == "Connection refused"
    assert no_answer("http://127.0.0.1:no") is not None


def test_an_address_is_shown_without_its_password() -> None:
    assert shown("https://me:secret@far:5000/mlflow/") == "https://far:5000/mlflow" and shown("http://far") == "http://far"
