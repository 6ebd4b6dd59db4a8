"""The variables with which a command that runs sweeps starts what it starts: servers, templates, trials."""

from __future__ import annotations

import os

from cluster.stack.settings import environment

_QUIET = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # the live table is what a person reads; Prefect's UI has the log
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",  # each event that a server that is gone did not take, written out
    "GIT_PYTHON_REFRESH": "quiet",
}


def prepare_environment() -> str | None:
    """Settings that Prefect and MLflow read when they are imported. Returns the URL of the Prefect server to use, None where none runs.

    A stack started by `make up` is used if it is up, so that its UIs show the sweep.
    """
    for name, value in {**environment(), **_QUIET}.items():
        os.environ.setdefault(name, value)
    return os.environ.get("PREFECT_API_URL") or None
