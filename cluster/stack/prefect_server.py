"""`python -m cluster.stack.prefect_server PORT [DATABASE]`: the Prefect server of `prefect server start`, behind `LocalOnly`.

DATABASE is the URL of another database than SQLite in Prefect's home.
With `--socket=DESCRIPTOR` it listens on that socket, which is bound to PORT.
With `--until-eof` it ends when its standard input is closed, so that a server started by a command never outlives that command.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from cluster.stack.empty_database import PREFECT
from cluster.stack.guard import App, LocalOnly
from cluster.stack.settings import HOST

_DATABASE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"


def main(port: int, database: str | None = None, *, bound: int | None = None, until_eof: bool = False) -> None:
    """Serve on loopback until a signal or, with `until_eof`, the end of standard input. Its database is its user's alone.

    `bound`: descriptor of a socket that is bound to `port`.
    """
    os.umask(0o077)
    _use_database(database)
    if until_eof:
        threading.Thread(target=_end_with_input, daemon=True).start()
    gc.disable()  # imports make no garbage, and collections that look for some take a seventh of the start
    import uvicorn  # noqa: F401 (here, to be frozen below with what else stays)
    from prefect.server.api.server import create_app

    app = create_app(final=True)
    gc.freeze()  # what stays for good is not looked through again, nor at the end
    gc.enable()
    _serve(LocalOnly(app), port, bound)


def _use_database(database: str | None) -> None:
    """Before Prefect is imported, which reads its settings from the environment. A new SQLite file is a copy of one with empty tables."""
    if database:
        os.environ[_DATABASE] = database
    home = os.environ.get("PREFECT_HOME")
    if home and _DATABASE not in os.environ:
        PREFECT.copy(Path(home) / "prefect.db")


def _serve(app: App, port: int, bound: int | None) -> None:
    """As uvicorn.run, which takes no socket that is there already."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, host=HOST, port=port, timeout_keep_alive=5, log_level="warning"))
    with suppress(KeyboardInterrupt):  # of a Ctrl-C after which it has ended by itself
        server.run(sockets=None if bound is None else [socket.socket(fileno=bound)])
    if not server.started:
        sys.exit(3)


def _end_with_input() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if not word.startswith("--")]
    found = [int(word.removeprefix("--socket=")) for word in sys.argv if word.startswith("--socket=")]
    main(int(given[0]), *given[1:], bound=found[0] if found else None, until_eof="--until-eof" in sys.argv)
