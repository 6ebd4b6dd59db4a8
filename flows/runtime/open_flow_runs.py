"""Whether Prefect takes an earlier flow run of a sweep for one that still runs. Looks into the local server's database: none need run."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from experiments.config.paths import runs_root
from tasks.sweep.store import SweepStore

OPEN = ("RUNNING", "PENDING", "CANCELLING", "PAUSED")  # types of states of Prefect's that are no end
_DATABASE = ".prefect/prefect.db"  # of the server of `make up`, and of those that commands start for themselves


def open_flow_runs(store: SweepStore) -> list[str]:
    """Ids of the sweep's flow runs that have not ended there: each was killed, or its server was. [] where there is no such database."""
    path = runs_root() / _DATABASE
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)) as database:
            states = dict(database.execute("select id, state_type from flow_run"))
    except sqlite3.Error:  # no database, a damaged or a locked one, another version's: only Prefect's own pages lose by it
        return []
    return [run for run in store.flow_runs() if states.get(run) in OPEN]
