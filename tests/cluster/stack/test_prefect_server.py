"""Which database Prefect's server is given, and which socket. As a process of its own: tests/integration, tests/faults."""

from __future__ import annotations

import os
import socket
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from cluster.stack import prefect_server
from cluster.stack.guard import Receive, Scope, Send
from cluster.stack.settings import HOST

DATABASE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"


@pytest.mark.parametrize(
    ("database", "variable", "copied"), [(None, None, True), ("postgresql://x", None, False), (None, "postgresql://y", False)]
)
def test_prefect_gets_the_database_and_no_copy_of_sqlites(
    database: str | None, variable: str | None, copied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv(DATABASE, variable or "")
    if variable is None:
        monkeypatch.delenv(DATABASE)
    copies: list[Path] = []
    monkeypatch.setattr(prefect_server, "PREFECT", SimpleNamespace(copy=copies.append))
    prefect_server._use_database(database)
    assert os.environ.get(DATABASE) == (database or variable)
    assert copies == ([tmp_path / "prefect.db"] if copied else [])


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[uvicorn.Server]:
    """Those that are made, to end them by."""
    made: list[uvicorn.Server] = []

    class Recorded(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            made.append(self)

    monkeypatch.setattr(uvicorn, "Server", Recorded)
    return made


def answers(ended: Callable[[], None]) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            ended()
        else:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ours"})

    return app


def test_it_listens_on_the_socket_that_it_was_given(servers: list[uvicorn.Server]) -> None:
    ended: list[bool] = []
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()  # so that the request below waits until the server takes it
        port, bound = listener.getsockname()[1], os.dup(listener.fileno())
    thread = threading.Thread(target=prefect_server._serve, args=(answers(lambda: ended.append(True)), port, bound))
    thread.start()
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}", timeout=60) as answer:
            assert answer.read() == b"ours"
        assert not ended
    finally:
        servers[0].should_exit = True
        thread.join()
    assert ended


def test_a_port_that_another_program_has_ends_it_with_a_status(servers: list[uvicorn.Server]) -> None:
    with socket.socket() as theirs:
        theirs.bind((HOST, 0))
        theirs.listen()
        with pytest.raises(SystemExit) as ended:
            prefect_server._serve(answers(lambda: None), theirs.getsockname()[1], None)
    assert ended.value.code
    assert not servers[0].started


def test_an_application_that_cannot_start_ends_it_with_a_status(servers: list[uvicorn.Server]) -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(SystemExit) as ended:
        prefect_server._serve(fails, 0, None)
    assert ended.value.code == 3
    assert not servers[0].started
