"""A Prefect server of this command's own, for machines where none runs.

Prefect would start one itself, but in our process group: Ctrl-C would end it before the flow's last state is recorded, and the flow
would wait minutes for it. This one is in a session of its own and ends with us, whatever ends us.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.python_path import environment_of
from cluster.stack.empty_database import PREFECT
from experiments.config.errors import UserError
from experiments.config.paths import REPOSITORY, runs_root

_START_S = 180.0  # a new database on a busy machine
_LEAN = {
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",  # two seconds, each time; who saves a block registers its type
}


class PrefectServerError(UserError):
    """The server did not start: says where its log is."""


@dataclass(frozen=True)
class OwnServer:
    """A server that is starting. `url`: of its API, known before it answers."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self) -> str:
        """Its API's URL, once it answers. Raises PrefectServerError."""
        deadline = time.monotonic() + _START_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):  # noqa: S310 - our own address
                    return self.url
            except OSError:
                if self.process.poll() is not None:
                    raise PrefectServerError(f"the Prefect server ended with status {self.process.returncode}; see {self.log}") from None
                if time.monotonic() > deadline:
                    raise PrefectServerError(f"the Prefect server did not answer within {_START_S:.0f} s; see {self.log}") from None
                time.sleep(0.1)


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """Start a server on a free port of loopback, and return at once: there is something to do until it answers. Raises DamagedFile."""
    folder = runs_root() / ".prefect"
    folder.mkdir(parents=True, exist_ok=True)
    PREFECT.check(folder / "prefect.db")
    environment = {**os.environ, **environment_of(REPOSITORY, os.environ), **_LEAN, "PREFECT_HOME": str(folder)}
    environment.pop("PREFECT_API_URL", None)
    # The server gets the socket, not its number alone: it takes seconds to start, in which any program could be given a port that is free
    with open(folder / "server.log", "ab") as log, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
        server = subprocess.Popen(
            [sys.executable, "-m", "cluster.stack.prefect_server", str(port), f"--socket={listener.fileno()}", "--until-eof"],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        yield OwnServer(f"http://127.0.0.1:{port}/api", server, folder / "server.log")
        if server.poll() is None:
            _send_the_rest()
    finally:
        assert server.stdin is not None
        server.stdin.close()
        try:
            server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _send_the_rest() -> None:
    """Prefect sends logs and events from threads; what they still hold at exit would be tried for a minute at a server that is gone."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=10)
