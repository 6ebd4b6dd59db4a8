"""MLflow is slow, locked, away or lies: the projection still ends up equal to the journals, and nothing waits for it (rows 11 to 14)."""

from __future__ import annotations

import http.client
import http.server
import logging
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.journal.journal import read_journal
from experiments.config.paths import runs_root
from experiments.trial import Outcome
from tasks.tracking.client import connect
from tasks.tracking.live import LivePublisher
from tasks.tracking.log_trial import log_records
from tasks.tracking.projection import publish_sweep
from tasks.tracking.runs import SweepRuns
from tests.mlflow_support import all_runs, check_projection, make_store, write_journal
from tests.ports_support import free_port

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("mlflow_database")]
LOG = logging.getLogger("test")


def project(store: Any, plan: Any, wait_s: float = 60.0) -> None:
    publish_sweep(store, plan, [store.dir / "plan.json"], None, wait_s=wait_s, log=LOG)


@contextmanager
def mlflow_server(port: int, database: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{database}", "--host", "127.0.0.1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    log = open(database.with_suffix(".log"), "ab")  # noqa: SIM115 - the server's for its life
    server = subprocess.Popen(
        [*command, "--port", str(port), "--workers", "1"], env=environment, stdout=log, stderr=log, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30).read()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, database.with_suffix(".log").read_text()
                time.sleep(0.1)
        yield server
    finally:
        kill(server)
        log.close()


def kill(server: subprocess.Popen[bytes]) -> None:
    """The server and its worker processes."""
    try:
        os.killpg(server.pid, 9)
    except ProcessLookupError:
        return
    server.wait()


def test_projecting_again_adds_nothing_and_repeated_batches_are_one_row(tmp_path: Path) -> None:
    outcomes = {"good": Outcome.OK, "big": Outcome.DOES_NOT_FIT, "bad": Outcome.DIVERGED, "cut": Outcome.CANCELLED}
    store, plan = make_store(runs_root(), outcomes)
    runs = SweepRuns(connect(), plan)
    steps = read_journal(store.trial_dir(plan.trials[0].key) / "journal.jsonl").steps
    run_id = runs.trial_run(plan.trials[0], 1, 1.7e9)
    log_records(runs.client, run_id, steps[:20])
    log_records(runs.client, run_id, steps[10:])  # row 14: what overlaps was sent twice
    project(store, plan)
    check_projection(store)
    before = [(run.info.run_id, run.info.status, run.info.end_time) for run in all_runs(store.sweep_id)]
    project(store, plan)
    check_projection(store)
    assert [(run.info.run_id, run.info.status, run.info.end_time) for run in all_runs(store.sweep_id)] == before
    statuses = {run.data.params["name"]: run.info.status for run in all_runs(store.sweep_id)}
    assert statuses == {"good": "FINISHED", "big": "FAILED", "bad": "FAILED", "cut": "KILLED"}


def test_runs_that_a_dead_flow_left_open_are_closed_with_a_reason(tmp_path: Path) -> None:
    store, plan = make_store(runs_root(), {"good": Outcome.OK})
    runs = SweepRuns(connect(), plan)
    runs.trial_run(plan.trials[0], 1, 1.7e9)
    write_journal(store.trial_dir(plan.trials[0].key), 2, 10)
    result = store.result(plan.trials[0].key)
    assert result is not None
    store.save_result(result.model_copy(update={"attempt": 2}))
    assert [run.info.status for run in all_runs(store.sweep_id)] == ["RUNNING"]  # the fault is there
    project(store, plan)
    check_projection(store)
    older = next(run for run in all_runs(store.sweep_id) if run.data.tags["trial.attempt"] == "1")
    assert (older.info.status, older.data.tags["reason"]) == ("FAILED", "attempt 1 was followed by 2")


@contextmanager
def impatient_sqlite() -> Iterator[None]:
    """MLflow asks SQLite to wait 20 s for a lock before it says so; here it says so at once."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def shorten(*arguments: Any) -> tuple[str, Any]:
        statement, parameters = arguments[2:4]
        return ("PRAGMA busy_timeout = 50" if "busy_timeout" in statement else statement), parameters

    event.listen(Engine, "before_cursor_execute", shorten, retval=True)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", shorten)


class Unlocks(logging.Handler):
    """Counts how often a publisher said that the database is locked, and unlocks it at the second time."""

    def __init__(self, lock: sqlite3.Connection) -> None:
        super().__init__()
        self._lock, self.refused = lock, 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        assert "database is locked" in text and "again in" in text, text
        self.refused += 1
        if self.refused == 2:
            self._lock.execute("COMMIT")


def test_row_11_a_locked_database_is_waited_for() -> None:
    store, plan = make_store(runs_root(), {"good": Outcome.OK})
    connect()
    with closing(sqlite3.connect(runs_root() / "mlflow.db", isolation_level=None)) as lock, impatient_sqlite():
        lock.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):  # the fault is there
            sqlite3.connect(runs_root() / "mlflow.db", timeout=0).execute("BEGIN EXCLUSIVE")
        unlocks = Unlocks(lock)
        LOG.addHandler(unlocks)
        try:
            project(store, plan, wait_s=240)
        finally:
            LOG.removeHandler(unlocks)
    assert unlocks.refused == 2
    check_projection(store)


@contextmanager
def threads_that_ask() -> Iterator[set[int]]:
    """The ids of the threads that send an HTTP request as MLflow's client does."""
    import requests

    found: set[int] = set()
    send = requests.Session.send

    def noting(*arguments: Any, **more: Any) -> Any:
        found.add(threading.get_ident())
        return send(*arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests.Session, "send", noting)
        yield found


def test_row_12_a_server_that_dies_delays_nothing_and_is_filled_up_later(monkeypatch: pytest.MonkeyPatch) -> None:
    store, plan = make_store(runs_root(), {"good": Outcome.OK}, steps=200)
    trial, folder = plan.trials[0], store.trial_dir(plan.trials[0].key)
    steps = read_journal(folder / "journal.jsonl").steps
    port, database = free_port(), runs_root() / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")  # its client asks as often, and does not wait in between
    publisher = LivePublisher(plan, LOG)
    publisher.start()
    with mlflow_server(port, database) as server:
        publisher.feed(trial, 1, 1.7e9, steps[:50])
        deadline = time.monotonic() + 120
        while not (runs := all_runs(store.sweep_id)) or "loss" not in runs[0].data.metrics:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        kill(server)  # mid-run
        result = store.result(trial.key)
        assert result is not None
        with threads_that_ask() as asking:
            for at in range(50, 200, 10):
                publisher.feed(trial, 1, 1.7e9, steps[at : at + 10])
            publisher.finish(trial, result, folder)
            publisher.close()
        assert asking and threading.get_ident() not in asking  # feeding is putting on a queue: another thread calls MLflow
    assert publisher.failures > 0  # the fault fired
    with pytest.raises(Exception, match=r"Max retries|Connection|refused"):
        project(store, plan, wait_s=0.0)
    with mlflow_server(port, database):
        project(store, plan)
        check_projection(store)


class LosesReplies(http.server.BaseHTTPRequestHandler):
    """Passes requests on, and drops the connection instead of the first replies to `create a run`."""

    target = 0
    lost = 0
    to_lose = 2

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def do_PATCH(self) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        upstream = http.client.HTTPConnection("127.0.0.1", type(self).target, timeout=120)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        upstream.request(self.command, self.path, body, headers)
        reply = upstream.getresponse()
        text = reply.read()
        if self.path.endswith("/runs/create") and type(self).lost < type(self).to_lose:
            type(self).lost += 1
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.headers.get("Content-Type", "application/json"))
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        upstream.close()

    def log_message(self, *_: object) -> None:
        pass


def test_row_13_a_lost_reply_to_create_leaves_one_canonical_run(monkeypatch: pytest.MonkeyPatch) -> None:
    store, plan = make_store(runs_root(), {"good": Outcome.OK, "also": Outcome.OK})
    port = free_port()
    with mlflow_server(port, runs_root() / "mlflow.db"):
        LosesReplies.target, LosesReplies.lost = port, 0
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), LosesReplies)
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{proxy.server_address[1]}")
            project(store, plan, wait_s=120)
            assert LosesReplies.lost == LosesReplies.to_lose  # the fault fired
            check_projection(store)
        finally:
            proxy.shutdown()
            thread.join()
            proxy.server_close()
