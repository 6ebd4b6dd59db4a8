"""PostgreSQL under Prefect and MLflow: `up` makes it and points both at it, a sweep lands in it, nobody else gets in, `down` stops it.

The stack's other components do not touch it and are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from cluster.stack import control, postgresql, process, settings
from cluster.stack.components import Component, components
from cluster.stack.settings import PORTS, Settings
from tests.cli_support import sweep
from tests.ports_support import free_port
from tests.stack_support import post, until

_HERE = Settings(Path("/nonexistent"), Path("/nonexistent"), {})

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.skipif(postgresql.binaries(_HERE) is None, reason="PostgreSQL is not installed here"),
    pytest.mark.skipif(find_spec("psycopg2") is None, reason="psycopg2 is not installed here"),
]


def _without_ray(chosen: Settings) -> list[Component]:
    return [part for part in components(chosen) if part.name not in ("ray", "worker")]


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setattr(control, "components", _without_ray)
    monkeypatch.setenv("SWEEPBENCH_DATABASE", "postgresql")
    for variable, _ in PORTS.values():
        monkeypatch.setenv(variable, str(free_port()))
    made = settings.load(tmp_path)
    try:
        control.up(tmp_path)
        yield made
    finally:
        control.down(tmp_path)
        shutil.rmtree(made.postgresql_data, ignore_errors=True)  # root's is not in the test's folder


def ask(stack: Settings, role: str, database: str, question: str) -> subprocess.CompletedProcess[str]:
    folder = postgresql.binaries(stack)
    assert folder is not None
    command = [str(folder / "psql"), "-h", str(stack.postgresql_socket), "-U", role, "-d", database, "-Atc", question]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def rows(stack: Settings, database: str, question: str) -> list[str]:
    done = ask(stack, database, database, question)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_sweep_is_in_both_databases_and_nobody_else_gets_in(stack: Settings, tmp_path: Path) -> None:
    running = dict.fromkeys(("postgresql", "prefect", "mlflow"), "running")
    until(lambda: {row["name"]: row["state"] for row in control.status(tmp_path)} == running)  # a busy one answers late
    record = process.read_record(stack.state, "postgresql")
    assert record is not None
    listens_and_lets_in_its_user_alone(stack, record)

    # killed: `up` starts it again, by what is there and not by the variable, and the servers go on with it
    os.kill(record.pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(record.pid)] if psutil.pid_exists(record.pid) else [], timeout=120)
    del os.environ["SWEEPBENCH_DATABASE"]
    said: list[str] = []
    control.up(tmp_path, said.append)
    assert f"PostgreSQL: pid {record.pid} no longer runs" in said[0]
    assert sum("already running" in line for line in said) == 2

    addresses = {"PREFECT_API_URL": f"{stack.prefect_url}/api", "MLFLOW_TRACKING_URI": stack.mlflow_url}
    status, text = sweep("run", "synthetic", "--profile", "smoke", "--set", "steps=60", folder=tmp_path, **addresses)
    assert status == 0, text
    sweep_id = next(path.parent.name for path in stack.runs.glob("*/plan.json"))
    assert rows(stack, "prefect", "SELECT state_type FROM flow_run") == ["COMPLETED"]
    assert sweep_id in rows(stack, "mlflow", "SELECT name FROM runs WHERE status = 'FINISHED'")
    assert len(rows(stack, "mlflow", "SELECT name FROM runs WHERE status = 'FINISHED'")) >= 2  # the sweep and its trial
    assert not list(stack.runs.glob("**/*.db")), "a database of SQLite was made beside it"

    members = process.members(record)
    assert control.down(tmp_path, said.append) == ["mlflow", "prefect", "postgresql"]
    assert not [member for member in members if member.is_running() and member.status() != psutil.STATUS_ZOMBIE]
    assert not stack.postgresql_socket.exists()
    assert "database system is shut down" in (stack.state / "postgresql.log").read_text(), "it was killed and would have to recover"


def listens_and_lets_in_its_user_alone(stack: Settings, record: process.Record) -> None:
    members = {member.pid for member in process.members(record)}
    assert not [c for c in psutil.net_connections("inet") if c.pid in members], "it listens on the network"
    for folder in (stack.postgresql_data, stack.postgresql_socket):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert psutil.Process(record.pid).uids().effective != 0
    for role, database in (("postgres", "postgres"), ("mlflow", "prefect"), ("prefect", "mlflow")):
        refused = ask(stack, role, database, "SELECT 1")
        assert (refused.returncode, refused.stdout) == (2, ""), role
    assert rows(stack, "prefect", "SELECT rolname FROM pg_roles WHERE rolcanlogin AND rolsuper") == ["postgres"]
    status, found = post(f"{stack.mlflow_url}/api/2.0/mlflow/experiments/search", {"max_results": 1})
    assert status == 200, json.dumps(found)
