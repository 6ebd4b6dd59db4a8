"""`python -m cluster.stack.prefect_server PORT [DATABASE]`: the Prefect server of `prefect server start`, behind `LocalOnly`.

DATABASE is the URL of another database than SQLite in Prefect's home.
With `--until-eof` it ends when its standard input is closed, so that a server started by a command never outlives that command.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from pathlib import Path

from cluster.stack.empty_database import PREFECT
from cluster.stack.guard import LocalOnly
from cluster.stack.settings import HOST

_DATABASE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"


def main(port: int, database: str | None = None, *, until_eof: bool = False) -> None:
    """Serve on loopback until a signal or, with `until_eof`, the end of standard input. Its database is its user's alone."""
    os.umask(0o077)
    if database:
        os.environ[_DATABASE] = database
    home = os.environ.get("PREFECT_HOME")
    if home and _DATABASE not in os.environ:
        PREFECT.copy(Path(home) / "prefect.db")
    if until_eof:
        threading.Thread(target=_end_with_input, daemon=True).start()
    gc.disable()  # imports make no garbage, and collections that look for some take a seventh of the start
    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app(final=True)
    gc.freeze()  # what stays for good is not looked through again, nor at the end
    gc.enable()
    uvicorn.run(LocalOnly(app), host=HOST, port=port, timeout_keep_alive=5, log_level="warning")


def _end_with_input() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    until_eof = sys.argv[-1] == "--until-eof"
    given = sys.argv[1 : -1 if until_eof else None]
    main(int(given[0]), *given[1:], until_eof=until_eof)
