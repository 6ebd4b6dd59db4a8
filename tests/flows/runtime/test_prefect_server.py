"""A command's own Prefect server: its port is taken from the first moment."""

from __future__ import annotations

import io
import os
import socket
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from flows.runtime import prefect_server


def test_nobody_else_gets_its_port_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[socket.socket] = []

    def start(command: list[str], *, pass_fds: list[int], env: dict[str, str], **_: Any) -> Any:
        assert command[-2:] == [f"--socket={pass_fds[0]}", "--until-eof"]
        assert env["PYTHONSAFEPATH"] == "1", "it is ours, whatever lies in the user's folder"
        given.append(socket.socket(fileno=os.dup(pass_fds[0])))  # as a child inherits it
        return SimpleNamespace(stdin=io.BytesIO(), poll=lambda: 0, wait=lambda timeout: 0)

    monkeypatch.setattr(prefect_server, "subprocess", SimpleNamespace(Popen=start, DEVNULL=-3, PIPE=-1))
    with prefect_server.own_server() as server:
        at = ("127.0.0.1", int(urlsplit(server.url).port or 0))
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(at)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(at, timeout=60)
        given[0].listen()
        socket.create_connection(at, timeout=60).close()
    given[0].close()
