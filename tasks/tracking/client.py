"""The connection to MLflow: its store, a client, and the address of its pages."""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from cluster.stack.empty_database import MLFLOW
from experiments.config.error_text import first_line
from experiments.config.paths import runs_root

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_SQLITE = "sqlite:///"
_ASK_S = 3.0  # for a server's answer: a person waits for it


def tracking_uri() -> str:
    """$MLFLOW_TRACKING_URI, else SQLite under runs/."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{runs_root() / 'mlflow.db'}"


def check_database(*, thorough: bool = False) -> None:
    """Raise DamagedFile where MLflow's store is an SQLite file that cannot be read; `thorough`: all of it. Imports no MLflow."""
    if tracking_uri().startswith(_SQLITE):
        MLFLOW.check(_database(), thorough=thorough)


def _database() -> Path:
    return Path(tracking_uri().removeprefix(_SQLITE).partition("?")[0]).absolute()  # sqlite:///mlflow.db is of the working folder


def connect() -> MlflowClient:
    """A client whose calls fail soon instead of blocking for minutes. A database that is not there yet is made, if it is SQLite.

    Raises DamagedFile for an SQLite file that cannot be read, MlflowException.
    """
    check_database()
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    from mlflow.tracking import MlflowClient

    for name in ("mlflow", "alembic"):
        getLogger(name).setLevel("WARNING")  # otherwise they log the creation of tables into the live table
    getLogger("mlflow.store").setLevel("CRITICAL")  # it writes the traceback of an error that it raises: who catches it says it in a line
    uri = tracking_uri()
    if not uri.startswith(_SQLITE):
        return MlflowClient(tracking_uri=uri)
    runs_root().mkdir(parents=True, exist_ok=True)
    with FileLock(runs_root() / ".mlflow.lock"):  # without it, of eight processes with a new file seven crashed
        MLFLOW.give(_database())  # first: a client that finds none makes one in place
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)
    return client


def ui_url() -> str:
    """Address of the MLflow UI, which `sweep ui` or `make up` may still have to start."""
    uri = tracking_uri()
    return uri.rstrip("/") if uri.startswith("http") else f"http://127.0.0.1:{os.environ.get('SWEEPBENCH_MLFLOW_PORT', '5000')}"


def why(error: BaseException) -> str:
    """MLflow's error in a line. Of a server that cannot be reached it is the address and the reason; its client takes 300 characters,
    with the class of each layer's error around it."""
    uri = tracking_uri()
    at: BaseException | None = error
    while at is not None and uri.startswith("http"):
        if isinstance(at, (ConnectionError, TimeoutError)):
            return f"{shown(uri)}: {at.strerror or first_line(at)}"
        at = at.__cause__ or at.__context__
    return first_line(error)


def shown(uri: str) -> str:
    """The address of a server as it may be printed and logged: without a password."""
    return re.sub("//[^/@]*@", "//", uri).rstrip("/")


def no_answer(uri: str) -> str | None:
    """Why no server answers at this web address, such as `Connection refused`; None where one does, be it with a refusal."""
    bare = shown(uri)
    proxies: dict[str, str] | None = {} if is_local(bare) else None  # loopback never goes through a proxy; None: the environment's
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler(proxies)).open(bare, timeout=_ASK_S):
            return None
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return None
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        return (isinstance(cause, OSError) and cause.strerror) or first_line(error)


def is_local(uri: str) -> bool:
    """True if the artifacts of the store at `uri` are on this machine."""
    return uri.startswith(("sqlite:", "http://127.0.0.1", "http://localhost"))
