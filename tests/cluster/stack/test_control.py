"""`up` and `down` on small stand-in components: what is reused, restarted, rolled back and stopped. The real ones: tests/integration."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cluster.stack import control, deployments, ports, process, settings, sweeps
from cluster.stack.components import Component, get
from cluster.stack.errors import StackError
from cluster.stack.guard import allowed
from cluster.stack.settings import Settings
from tests.ports_support import free_ports

# Serves HTTP, and has a child in a session of its own, as Ray's and Prefect's servers may
SERVER = (
    "import http.server, subprocess, sys\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True)\n"
    "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()\n"
)
DIES = "import sys; print('no space left'); sys.exit(3)"


def runs(member: psutil.Process) -> bool:
    """False too for one that has ended and waits for its parent (init, say) to take note."""
    try:
        return member.is_running() and member.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until_ready(log: Path) -> None:
    """Wait until a program says `ready`."""
    deadline = time.monotonic() + 120
    while "ready" not in log.read_text():
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.02)


class Stack:
    """A repository folder, the stand-in components for it, and what was said."""

    def __init__(self, root: Path) -> None:
        self.root, self.said = root, list[str]()
        self.first, self.second = free_ports(2)
        self.code = {"mlflow": SERVER, "worker": SERVER}

    def components(self, settings: Settings) -> list[Component]:
        return [self._component("mlflow", self.first), self._component("worker", self.second, needs=("mlflow",))]

    def _component(self, name: str, port: int, needs: tuple[str, ...] = ()) -> Component:
        return Component(
            name=name,
            title=name.upper(),
            command=[sys.executable, "-c", self.code[name], str(port)],
            answers=lambda _: get(f"http://127.0.0.1:{port}/")[0] == 200,
            ports={name: port},
            needs=needs,
            url=f"http://127.0.0.1:{port}",
            start_timeout_s=120.0,
            stop_grace_s=3.0,
        )

    def up(self) -> dict[str, int]:
        self.said.clear()
        return {row["name"]: row["pid"] for row in control.up(self.root, self.said.append)}

    def down(self) -> list[str]:
        self.said.clear()
        return control.down(self.root, self.said.append)

    @property
    def heard(self) -> str:
        return "\n".join(self.said)

    def record(self, name: str) -> process.Record:
        record = process.read_record(settings.load(self.root).state, name)
        assert record is not None
        return record


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    made = Stack(tmp_path)
    monkeypatch.setattr(control, "components", made.components)
    monkeypatch.setattr(deployments, "create_pool", lambda _: True)
    monkeypatch.setenv("SWEEPBENCH_PREFECT_PORT", str(free_ports(1)[0]))  # where nothing answers: no server of this machine is asked
    monkeypatch.setattr(control, "PORTS", {**control.PORTS, "worker": ("A_VARIABLE", 1)})
    return made


def test_up_and_down_twice(stack: Stack) -> None:
    pids = stack.up()
    members = [member for name in pids for member in process.members(stack.record(name))]
    assert len(members) == 4  # two servers, each with a child in a session of its own
    assert stack.up() == pids
    assert stack.heard.count("already running") == 2
    assert (stack.root / "prefect.toml").exists()

    assert stack.down() == ["worker", "mlflow"]
    assert not [member for member in members if runs(member)]
    assert not (stack.root / "prefect.toml").exists()
    assert stack.down() == []
    assert "not running" in stack.heard


def test_what_a_worker_runs_ends_in_order_before_it_is_stopped(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[tuple[str, ...]] = []

    def end_sweeps(settings: Settings, processes: list[psutil.Process], say: object) -> None:
        assert all(runs(one) for one in processes) and log == ["pause ends", "pause ends", "pause"]
        ended.append(tuple("worker" for one in processes if one.pid == stack.record("worker").pid))

    log: list[str] = []

    @contextmanager
    def pool_paused(settings: Settings) -> Iterator[None]:
        log.append("pause")
        yield
        log.append("before it was stopped" if runs(worker) else "stopped")

    monkeypatch.setattr(deployments, "pool_paused", pool_paused)
    monkeypatch.setattr(deployments, "end_pause", lambda settings: log.append("pause ends"))
    settled: list[bool] = []
    monkeypatch.setattr(sweeps, "settle_flow_runs", lambda settings, say, worker_died: settled.append(worker_died))
    monkeypatch.setattr(sweeps, "end_sweeps", end_sweeps)
    stack.up()
    stack.up()
    assert (settled, ended) == ([True, False], [])
    worker = psutil.Process(stack.record("worker").pid)
    stack.down()
    assert ended == [("worker",)], "once, and not of MLflow's server"
    assert log[3:] == ["stopped"]


def test_who_uses_the_servers_is_named_before_they_stop(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[tuple[set[str], list[int]]] = []

    def name_users(settings: Settings, servers: set[str], worker: list[psutil.Process], say: object) -> None:
        assert all(runs(one) for one in worker) and (not servers or ports.in_use(stack.first))
        named.append((servers, [one.pid for one in worker]))

    monkeypatch.setattr(sweeps, "name_users", name_users)
    pids = stack.up()
    worker = [one.pid for one in process.members(stack.record("worker"))]
    stack.down()
    assert pids["worker"] in worker
    assert named == [({f"127.0.0.1:{stack.first}", f"127.0.0.1:{stack.second}"}, worker)]
    named.clear()
    stack.down()
    assert named == [(set(), [])], "nothing runs"


def test_dead_component_is_named_and_started_again(stack: Stack) -> None:
    before = stack.up()
    os.kill(before["mlflow"], signal.SIGKILL)
    psutil.wait_procs([psutil.Process(before["mlflow"])] if psutil.pid_exists(before["mlflow"]) else [], timeout=120)
    assert {row["name"]: row["state"] for row in control.status(stack.root)} == {"mlflow": "dead", "worker": "running"}
    orphan = process.members(stack.record("mlflow"))
    assert len(orphan) == 1  # its child outlived it and is known by its mark
    after = stack.up()
    assert f"MLFLOW: pid {before['mlflow']} no longer runs" in stack.heard
    assert after["mlflow"] != before["mlflow"]
    assert after["worker"] == before["worker"]
    assert not runs(orphan[0])
    stack.down()


@pytest.mark.parametrize("text", ["other pid", "not json", "{}"])
def test_stale_record_harms_nobody(stack: Stack, text: str) -> None:
    """A record of a recycled pid (here our own, started at another time) or one that is damaged."""
    stranger = {"name": "mlflow", "pid": os.getpid(), "created": 1.0, "started": 1.0, "mark": "0", "command": [], "ports": {}}
    state = settings.load(stack.root).state
    state.mkdir(parents=True)
    (state / "mlflow.json").write_text(json.dumps(stranger) if text == "other pid" else text)
    assert stack.down() == []
    (state / "mlflow.json").write_text(json.dumps(stranger) if text == "other pid" else text)
    assert stack.up()["mlflow"] != os.getpid()
    stack.down()


def test_port_of_a_stranger(stack: Stack) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", stack.first))
        stranger.listen()
        with pytest.raises(StackError) as error:
            stack.up()
    assert f"port {stack.first} (MLFLOW) is in use by pid {os.getpid()}" in str(error.value)
    assert "SWEEPBENCH_MLFLOW_PORT" in str(error.value)
    assert control.status(stack.root)[1]["state"] == "not started"


def test_what_a_failed_up_started_is_stopped_again(stack: Stack) -> None:
    stack.code["worker"] = DIES
    with pytest.raises(StackError, match=r"WORKER died while starting; .*worker\.log:\n  no space left"):
        stack.up()
    assert "stopped again" in stack.heard
    assert not ports.in_use(stack.first)
    assert {row["state"] for row in control.status(stack.root)} == {"not started"}


def test_what_a_failed_up_cannot_stop_keeps_its_record(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.code["worker"] = DIES
    really = process.stop

    def stop(record: process.Record, grace_s: float, first: int) -> bool:
        if record.name == "mlflow":
            raise StackError("mlflow: pids [1] do not end")
        return really(record, grace_s, first)

    with monkeypatch.context() as patch:
        patch.setattr(process, "stop", stop)
        with pytest.raises(StackError, match="WORKER died while starting"):
            stack.up()
    assert process.alive(stack.record("mlflow"))
    assert stack.said[-2:] == [
        "MLFLOW: mlflow: pids [1] do not end; `make down` tries again",
        "stopped again what this call had started: worker",
    ]
    assert {row["name"]: row["state"] for row in control.status(stack.root)} == {"worker": "not started", "mlflow": "running"}
    assert stack.down() == ["mlflow"] and not ports.in_use(stack.first)


@pytest.mark.parametrize("written", [False, True])
def test_a_component_that_cannot_be_recorded_does_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool) -> None:
    """Nor does a child of it in a session of its own. The record may have been written all the same: its folder is synced last."""
    child = "subprocess.Popen(['sleep', '300'], start_new_session=True)"
    code = f"import subprocess, time; {child}; print('ready', flush=True); time.sleep(300)"
    marks: list[str] = []

    def full(path: Path, text: str) -> None:
        until_ready(tmp_path / "server.log")
        marks.append(json.loads(text)["mark"])
        if written:
            path.write_text(text)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(process, "atomic_write", full)
    with pytest.raises(OSError, match="No space left"):
        process.start(tmp_path, "server", [sys.executable, "-c", code], dict(os.environ), tmp_path, {})
    assert process.read_record(tmp_path, "server") is None
    assert [member.pid for member in psutil.process_iter() if process._marked(member, marks[0])] == []


def test_a_failed_up_keeps_what_ran_before(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = stack.up()

    def refuse(*_: object) -> list[str]:
        raise StackError("prefect.yaml could not be deployed")

    with monkeypatch.context() as patch:
        patch.setattr(deployments, "register", refuse)
        with pytest.raises(StackError, match=r"prefect\.yaml"):
            stack.up()
    assert {row["name"]: row["pid"] for row in control.status(stack.root)} == pids
    assert {row["state"] for row in control.status(stack.root)} == {"running"}
    stack.down()


def test_changed_command_restarts(stack: Stack) -> None:
    before = stack.up()
    stack.code["mlflow"] = SERVER + "#"
    assert stack.up()["mlflow"] != before["mlflow"]
    assert "MLFLOW: settings changed" in stack.heard
    stack.down()


def test_one_at_a_time(stack: Stack) -> None:
    with control._locked(settings.load(stack.root)), pytest.raises(StackError, match="another `up` or `down`"):
        stack.up()


def test_prefect_toml_of_the_user_stays(stack: Stack) -> None:
    mine = stack.root / "prefect.toml"
    mine.write_text("[api]\n")
    stack.up()
    assert "is yours and stays" in stack.heard
    stack.down()
    assert mine.read_text() == "[api]\n"


def test_token_is_ours_alone(stack: Stack) -> None:
    stack.up()
    token = settings.load(stack.root).token
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text()) == 64
    assert token.parent.stat().st_mode & 0o777 == 0o700
    stack.down()


def test_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(300)"
    record = process.start(tmp_path, "deaf", [sys.executable, "-c", code], dict(os.environ), tmp_path, {})
    until_ready(tmp_path / "deaf.log")
    assert process.stop(record, grace_s=0.3)
    assert not process.alive(record)
    assert not process.stop(record, grace_s=0.3)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SWEEPBENCH_MLFLOW_PORT": "http"}, "SWEEPBENCH_MLFLOW_PORT='http' is not a port"),
        ({"SWEEPBENCH_RAY_PORT": "80"}, "from 1024 to 65535"),
        ({"SWEEPBENCH_RAY_PORT": "4200"}, "SWEEPBENCH_RAY_PORT and SWEEPBENCH_PREFECT_PORT are both 4200"),
    ],
)
def test_ports_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StackError, match=message):
        settings.load(tmp_path)


def test_environment_without_a_stack_names_no_server(tmp_path: Path) -> None:
    variables = settings.environment(tmp_path)
    assert variables["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert not {"PREFECT_API_URL", "MLFLOW_TRACKING_URI", "RAY_AUTH_TOKEN_PATH"} & variables.keys()


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"host": "127.0.0.1:4200"}, True),
        ({"host": "localhost"}, True),
        ({"host": "127.0.0.1:4200", "origin": "http://127.0.0.1:4200"}, True),
        ({"host": "[::1]:4200", "origin": "http://localhost:4200"}, True),
        ({"host": "localhost", "origin": "http://127.0.0.1:80"}, True),
        ({"host": "localhost:9999", "origin": "http://localhost:9999"}, True),  # through a forwarded port
        ({"host": "127.0.0.1:4200", "origin": "http://127.0.0.1:5000"}, False),  # a page of another server of this machine
        ({"host": "127.0.0.1:4200", "origin": "http://localhost"}, False),
        ({"host": "127.0.0.1:4200", "origin": "https://localhost:4200"}, False),
        ({"host": "127.0.0.1:notaport"}, False),
        ({"host": "evil.example:4200"}, False),
        ({"host": "127.0.0.1.evil.example"}, False),
        ({"host": "127.0.0.1:4200", "origin": "http://evil.example"}, False),
        ({"host": "127.0.0.1:4200", "origin": "null"}, False),
        ({"host": "127.0.0.1:4200", "origin": "http://[bad"}, False),
        ({}, False),
    ],
)
def test_guard(headers: dict[str, str], expected: bool) -> None:
    assert allowed([(name.encode(), value.encode()) for name, value in headers.items()]) is expected


def test_command_line_reports_errors_by_exit_status(tmp_path: Path, stack: Stack) -> None:
    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cluster.stack", "--root", str(tmp_path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables}, timeout=240)

    bad = run("up", SWEEPBENCH_RAY_PORT="x")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr.startswith("error: SWEEPBENCH_RAY_PORT")
    status = run("status", "--json")
    assert status.returncode == 1
    assert {row["state"] for row in json.loads(status.stdout)} == {"not started"}
