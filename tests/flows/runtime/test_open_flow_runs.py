"""Which flow runs of a sweep Prefect takes for running: from its database, or from a server; what cannot be asked counts as ended."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from experiments.config.paths import runs_root
from flows.runtime import open_flow_runs as module
from flows.runtime.open_flow_runs import open_flow_runs
from tasks.sweep.store import SweepStore
from tests.tasks.plan_support import make_plan, make_trial, saved

STATES = {"a": "COMPLETED", "b": "RUNNING", "c": "CRASHED", "d": "PENDING", "e": "FAILED", "f": "CANCELLED"}
STATES |= {"g": "CANCELLING", "h": "PAUSED"}
OF_OTHERS = {"x": "RUNNING"}


@pytest.fixture
def store() -> SweepStore:
    """With a flow run in each state, and one that no server knows."""
    made = saved(make_plan([make_trial(1)]))
    for run in (*STATES, "unknown"):
        made.add_flow_run(run)
    return made


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            run = self.path.removeprefix("/api/flow_runs/")
            self.send_response(200 if run in STATES else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"state_type": STATES.get(run)}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/api"
        made.shutdown()
        thread.join()


def test_from_the_database_where_no_server_runs(store: SweepStore) -> None:
    assert open_flow_runs(store, None) == [], "there is none"
    folder = runs_root() / ".prefect"
    folder.mkdir()
    (folder / "prefect.db").write_bytes(b"no database")
    assert open_flow_runs(store, None) == []
    (folder / "prefect.db").unlink()
    with closing(sqlite3.connect(folder / "prefect.db")) as database, database:
        database.execute("create table flow_run (id text, state_type text)")
        database.executemany("insert into flow_run values (?, ?)", [*STATES.items(), *OF_OTHERS.items()])
    assert open_flow_runs(store, None) == ["b", "d", "g", "h"]


def test_from_the_server_that_is_used(store: SweepStore, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 60.0)  # a thread of a busy machine may answer late
    assert open_flow_runs(store, server) == ["b", "d", "g", "h"]
    assert open_flow_runs(store, "http://127.0.0.1:9/api") == [], "nothing answers there"
