"""`sweep ui`: the MLflow UI on the local store, loopback only."""

from __future__ import annotations

import os
import socket
import sys

from rich.console import Console

from experiments.config.paths import runs_root
from flows.cli.run_sweep import prepare_environment
from tasks.tracking.client import tracking_uri


def serve(port: int, out: Console, err: Console) -> int:
    """Serve until Ctrl-C. Returns an exit status; does not return where the server takes this process's place."""
    prepare_environment()
    uri = tracking_uri()
    if uri.startswith("http"):
        out.print(f"the MLflow UI runs already: {uri}", highlight=False)
        return 0
    if not (runs_root() / "mlflow.db").exists():
        err.print(f"there is nothing to show yet under {runs_root()}; `sweep run bridgetower` makes it", highlight=False, soft_wrap=True)
        return 1
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            err.print(f"port {port} is in use; choose another: sweep ui --port {port + 1}", highlight=False)
            return 1
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # the UI alone: seven helper processes less
    out.print(f"MLflow UI: http://127.0.0.1:{port}  (Ctrl-C ends it)", highlight=False)
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        uri,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    os.execv(sys.executable, [*command, "--artifacts-destination", str(runs_root() / "mlartifacts")])  # noqa: S606 - fixed arguments
