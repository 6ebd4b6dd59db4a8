"""`python -m cluster.stack.prefect_server PORT`: the Prefect server as `prefect server start` runs it, behind `LocalOnly`."""

from __future__ import annotations

import sys

from cluster.stack.guard import LocalOnly
from cluster.stack.settings import HOST


def main(port: int) -> None:
    """Serve on loopback until a signal ends it."""
    import uvicorn
    from prefect.server.api.server import create_app

    uvicorn.run(LocalOnly(create_app(final=True)), host=HOST, port=port, timeout_keep_alive=5, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]))
