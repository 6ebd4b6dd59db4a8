"""`sweep ui`: where it leads, and what it says where there is nothing to show."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.trial import Outcome
from flows.cli import open_page, ui
from tasks.sweep.store import StoreError
from tasks.tracking.client import connect
from tests.flows.cli.test_show import Page
from tests.ports_support import free_port
from tests.tasks.plan_support import SWEEP_ID, make_plan, make_trial, saved


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What was started in place of a browser and of the server."""
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(ui, "prepare_environment", lambda: None)
    found: list[Any] = []
    monkeypatch.setattr(ui.os, "execve", lambda program, words, environment: found.extend([words, environment]))
    monkeypatch.setattr(ui, "_open_once_up", lambda health, page: found.append(page))
    return found


def test_it_leads_to_the_charts_of_the_newest_sweep(started: list[Any]) -> None:
    plan = make_plan([make_trial(1)])
    saved(plan, t1=Outcome.OK)
    experiment, port = connect().create_experiment(plan.name), free_port()
    page = Page()
    ui.serve(port, None, page, open_=True)
    link = f"http://127.0.0.1:{port}/#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={SWEEP_ID}"
    assert page.lines[1] == ["charts:", f"{link}&compareRunsMode=CHART"]
    assert started[0] == f"{link}&compareRunsMode=CHART"
    assert started[1][1:4] == ["-m", "mlflow", "server"]
    assert started[2]["PYTHONSAFEPATH"] == "1", "what the user's folder has by that name is no server"
    assert started[2]["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"


def test_without_anything_to_show_or_a_port_it_says_so(started: list[Any]) -> None:
    with pytest.raises(ui.NoUi, match="there is nothing to show yet"):
        ui.serve(free_port(), None, Console(), open_=False)
    plan = make_plan([make_trial(1)])
    saved(plan)
    connect()
    with pytest.raises(ui.NoUi, match=f"{SWEEP_ID} is not in MLflow yet; `sweep resume {SWEEP_ID}` publishes it"):
        ui.serve(free_port(), SWEEP_ID, Console(), open_=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ui.NoUi, match=f"port {port} is in use; choose another: sweep ui --port {port + 1}"):
            ui.serve(port, None, Console(), open_=False)
        with pytest.raises(StoreError, match="nope"):
            ui.serve(port, "nope", Console(), open_=False)
    assert started == []


def test_a_server_that_does_not_answer_is_not_said_to_run(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    saved(make_plan([make_trial(1)]))
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{bound.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@{at}")
        with pytest.raises(ui.NoUi, match=rf"^MLFLOW_TRACKING_URI: http://{at} does not answer \(Connection refused\); start it "):
            ui.serve(free_port(), None, Page(), open_=False)
    assert started == []


def test_a_server_that_runs_is_named(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://far:5000/")
    monkeypatch.setattr(ui, "no_answer", lambda uri: None)
    page = Page()
    assert ui.serve(free_port(), None, page, open_=False) == 0
    assert page.lines == [["MLflow UI: http://far:5000 runs already"]] and started == []


def test_the_page_is_opened_once_its_server_answers(tmp_path: Path) -> None:
    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [sys.executable, "-P", open_page.__file__, f"http://127.0.0.1:{server.server_port}/health", "http://page/#x"]
        subprocess.run(command, check=True, timeout=60, env={**os.environ, "BROWSER": f"{browser} %s"})
        server.shutdown()
    assert opened.read_text() == "http://page/#x\n"
