"""The connection to MLflow: which store, and how to reach its pages."""

from __future__ import annotations

import os
from logging import getLogger
from typing import TYPE_CHECKING

from filelock import FileLock

from experiments.config.paths import runs_root

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient


def tracking_uri() -> str:
    """$MLFLOW_TRACKING_URI, else SQLite under runs/."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{runs_root() / 'mlflow.db'}"


def connect() -> MlflowClient:
    """A client whose calls fail soon instead of blocking for minutes. The first one to a new database creates its tables, alone."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    from mlflow.tracking import MlflowClient

    for name in ("mlflow", "alembic"):
        getLogger(name).setLevel("WARNING")  # else a new database's tables are announced in the middle of the live table
    uri = tracking_uri()
    client = MlflowClient(tracking_uri=uri)
    if uri.startswith("sqlite:"):
        runs_root().mkdir(parents=True, exist_ok=True)
        with FileLock(runs_root() / ".mlflow.lock"):  # eight processes at once on a fresh file: seven crash
            client.search_experiments(max_results=1)
    return client


def ui_url() -> str:
    """Where the MLflow UI is, or will be once `sweep ui` or `make up` has started it."""
    uri = tracking_uri()
    return uri.rstrip("/") if uri.startswith("http") else f"http://127.0.0.1:{os.environ.get('SWEEPBENCH_MLFLOW_PORT', '5000')}"


def is_local(uri: str) -> bool:
    """True where the store's artifacts lie on this machine."""
    return uri.startswith(("sqlite:", "http://127.0.0.1", "http://localhost"))
