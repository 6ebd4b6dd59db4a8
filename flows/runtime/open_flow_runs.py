"""Whether Prefect takes an earlier flow run of a sweep for one that still runs: it was killed, or Prefect's server was.

Only looks, and without importing Prefect: what settles them is a flow (flows/runtime/prefect_runs.py). What cannot be asked counts as
ended, since only Prefect's own pages lose by it.
"""

from __future__ import annotations

import json
import sqlite3
import urllib.request
from contextlib import closing
from typing import Any

from experiments.config.paths import runs_root
from tasks.sweep.store import SweepStore

OPEN = ("RUNNING", "PENDING", "CANCELLING", "PAUSED")  # types of states of Prefect's that are no end
_DATABASE = ".prefect/prefect.db"  # of the servers that commands start for themselves
_TIMEOUT_S = 5.0


def open_flow_runs(store: SweepStore, server: str | None) -> list[str]:
    """Ids of the sweep's flow runs that are open. `server`: the URL of Prefect's API; None: no server runs, its database is read."""
    runs = store.flow_runs()
    states = _in_database(runs) if server is None else {run: _at_server(server, run) for run in runs}
    return [run for run in runs if states.get(run) in OPEN]


def _at_server(server: str, run: str) -> Any:
    try:
        with urllib.request.urlopen(f"{server.rstrip('/')}/flow_runs/{run}", timeout=_TIMEOUT_S) as reply:  # noqa: S310 - the user's setting
            return json.load(reply).get("state_type")
    except (OSError, ValueError, AttributeError):
        return None


def _in_database(runs: list[str]) -> dict[str, Any]:
    try:
        with closing(sqlite3.connect(f"{(runs_root() / _DATABASE).as_uri()}?mode=ro", uri=True, timeout=_TIMEOUT_S)) as database:
            marks = ",".join("?" * len(runs))
            return dict(database.execute(f"select id, state_type from flow_run where id in ({marks})", runs))  # noqa: S608 - question marks
    except sqlite3.Error:
        return {}
