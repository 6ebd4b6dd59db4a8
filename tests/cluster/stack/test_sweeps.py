"""What the stack does with sweeps that its processes run, and with flow runs that Prefect takes for running though they died."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from cluster.stack.deployments import end_pause, pool_paused
from cluster.stack.settings import PORTS, Settings
from cluster.stack.sweeps import end_sweeps, name_users, settle_flow_runs

A, B, NIGHT = "bert-20260101-000000-0000", "vit-20260101-000000-0000", "nightly-small-20260101-000000-0000"
KILLED = "t5-20260101-000000-0000"
# Ends once it is told to, and says so
FLOW = """
import sys, time
from pathlib import Path
folder = Path(sys.argv[1])
while not (folder / ".stop").exists():
    time.sleep(0.01)
(folder / "reason").write_text((folder / ".stop").read_text())
"""
DEAF = "import time; time.sleep(600)"


class Prefect:
    """In place of a Prefect server: its flow runs, its work pool, and the states that were set."""

    def __init__(self) -> None:
        self.runs: list[dict[str, str]] = []
        self.set: dict[str, Any] = {}
        self.pool: dict[str, bool] | None = {"is_paused": False}
        self.patched: list[bool] = []
        self.asked: Any = None
        self.status = 201  # of a state that is set

    def reply(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if path == "/api/flow_runs/filter":
            self.asked = body
            return 200, self.runs
        if path == "/api/work_pools/local":
            if method == "PATCH":
                self.patched.append(body["is_paused"])
                return self.status, None
            return (200, self.pool) if self.pool is not None else (404, None)
        _, _, _, run, verb = path.split("/")
        assert (method, verb) == ("POST", "set_state")
        self.set[run] = body
        return self.status, {}


@pytest.fixture
def prefect() -> Prefect:
    return Prefect()


@pytest.fixture
def stack(prefect: Prefect, tmp_path: Path) -> Iterator[Settings]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, reply = prefect.reply(self.command, self.path, json.loads(self.rfile.read(length) or "null"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(reply).encode())

        do_POST = do_PATCH = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Settings(tmp_path, tmp_path / "runs", {**dict.fromkeys(PORTS, 1), "prefect": server.server_port})
        server.shutdown()
        thread.join()


def sweep(stack: Settings, name: str, *flow_runs: str, pid: int | None = None, host: str | None = None, servers: str = "") -> Path:
    folder = stack.runs / name
    folder.mkdir(parents=True)
    (folder / "flow_runs.txt").write_text("".join(f"{one}\n" for one in flow_runs))
    if pid is not None:
        holder = {"pid": pid, "host": host or os.uname().nodename, "since": 0.0, "servers": servers.split()}
        (folder / ".holder.json").write_text(json.dumps(holder))
    return folder


def run(name: str, pool: str | None = None) -> dict[str, Any]:
    return {"id": name, "name": f"run {name}", "work_pool_name": pool}


# --- flow runs


def test_flow_runs_whose_process_is_gone_become_crashed(stack: Settings, prefect: Prefect) -> None:
    sweep(stack, A, "earlier", "of-a-dead-command", "of-a-dead-worker")
    sweep(stack, NIGHT, "of-a-night")
    held = sweep(stack, B, "of-a-live-command")
    prefect.runs = [run("of-a-dead-command"), run("of-a-live-command"), run("of-a-dead-worker", "local"), run("of-a-night", "local")]
    prefect.runs += [run("without-a-sweep", "local"), run("of-somebody-else"), run("of-another-pool", "theirs")]
    said: list[str] = []
    with FileLock(held / ".lease"):
        settle_flow_runs(stack, said.append, worker_died=True)
    assert prefect.asked["flow_runs"]["state"]["type"]["any_"] == ["RUNNING", "PENDING", "CANCELLING"]
    assert sorted(prefect.set) == ["of-a-dead-command", "of-a-dead-worker", "of-a-night", "without-a-sweep"]
    crashed = {"state": {"type": "CRASHED", "name": "Crashed", "message": "its process is gone"}, "force": True}
    assert all(body == crashed for body in prefect.set.values())
    gone = "its process is gone; Prefect took it for running, and now has it as Crashed"
    assert said == [
        f"flow run run of-a-dead-command: {gone}; go on with it: sweep resume {A}",
        f"flow run run of-a-dead-worker: {gone}; go on with it: sweep resume {A}",
        f"flow run run of-a-night: {gone}; go on with it: the next `sweep nightly` of its date",
        f"flow run run without-a-sweep: {gone}",
    ]


def test_what_a_living_worker_runs_is_its_own_affair(stack: Settings, prefect: Prefect) -> None:
    sweep(stack, A, "a", "of-a-command")
    prefect.runs = [run("a", "local"), run("without-a-sweep", "local"), run("of-a-command")]
    settle_flow_runs(stack, lambda line: None, worker_died=False)
    assert list(prefect.set) == ["of-a-command"]


def test_what_the_server_refuses_is_not_said(stack: Settings, prefect: Prefect) -> None:
    sweep(stack, A, "a")
    prefect.runs, prefect.status = [run("a")], 500
    settle_flow_runs(stack, pytest.fail, worker_died=True)
    assert list(prefect.set) == ["a"]


def test_a_server_that_does_not_answer_changes_nothing(tmp_path: Path) -> None:
    settle_flow_runs(Settings(tmp_path, tmp_path / "runs", dict.fromkeys(PORTS, 9)), pytest.fail, worker_died=True)


# --- sweeps that processes of the stack run


def test_sweeps_end_in_order_before_their_worker(stack: Settings) -> None:
    flows = [subprocess.Popen([sys.executable, "-c", FLOW, str(stack.runs / name)]) for name in (A, B)]
    try:
        processes = [psutil.Process(flow.pid) for flow in flows]
        for name, flow in zip((A, B), flows, strict=True):
            sweep(stack, name, pid=flow.pid)
        sweep(stack, NIGHT, pid=os.getpid())  # of a process that is none of them
        sweep(stack, "vit-20260102-000000-0000", pid=flows[0].pid, host="elsewhere")
        (sweep(stack, "vit-20260103-000000-0000") / ".holder.json").write_text("[]")
        said: list[str] = []
        sweep(stack, KILLED, pid=flows[1].pid)  # its process was killed, and this one has its pid now: nobody holds the lease
        with FileLock(stack.runs / A / ".lease"), FileLock(stack.runs / B / ".lease"):
            end_sweeps(stack, processes, said.append, wait_s=120.0)
        assert [flow.wait(120) for flow in flows] == [0, 0]
        assert sorted(said) == [f"sweep {name}: its trials are being stopped ...; go on with it: sweep resume {name}" for name in (A, B)]
        assert [path.parent.name for path in sorted(stack.runs.glob("*/.stop"))] == [A, B]
        assert (stack.runs / A / "reason").read_text() == "the stack's Prefect worker was stopped"
    finally:
        for flow in flows:
            flow.kill()
            flow.wait()


def test_a_sweep_that_does_not_end_is_named(stack: Settings) -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF]) as flow:
        said: list[str] = []
        with FileLock(sweep(stack, A, pid=flow.pid) / ".lease"):
            end_sweeps(stack, [psutil.Process(flow.pid)], said.append, wait_s=0.0)
        assert said[1:] == [f"sweep {A}: process {flow.pid} has not ended within 0 s, and is ended now"]
        flow.kill()


def test_who_uses_the_servers_and_does_not_end_with_them_is_named(stack: Settings) -> None:
    worker, servers = psutil.Process(), {"127.0.0.1:4200", "127.0.0.1:5000"}
    sweep(stack, A, pid=1, servers="127.0.0.1:5000 far:80")
    sweep(stack, NIGHT, pid=2, servers="127.0.0.1:4200")
    sweep(stack, B, pid=worker.pid, servers="127.0.0.1:4200")  # ends with the worker
    sweep(stack, "own-20260101-000000-0000", pid=3, servers="127.0.0.1:40123")  # has a server of its own
    sweep(stack, "far-20260101-000000-0000", pid=4, servers="127.0.0.1:4200", host="elsewhere")
    sweep(stack, KILLED, pid=5, servers="127.0.0.1:4200")  # nobody holds its lease
    said: list[str] = []
    with ExitStack() as held:
        for folder in stack.runs.iterdir():
            if folder.name != KILLED:
                held.enter_context(FileLock(folder / ".lease"))
        name_users(stack, servers, [worker], said.append)
        name_users(stack, set(), [], pytest.fail)
    then = "trials that it has on pool local wait and then end as infra; for what is missing, after `make up`"
    does = "which the stack did not start, uses its servers and goes on without them; its results are kept here, and"
    assert said == [
        f"sweep {A}: process 1, {does} {then}: sweep resume {A}",
        f"sweep {NIGHT}: process 2, {does} {then}: the next `sweep nightly` of its date",
    ]


@pytest.mark.parametrize(("pool", "patched"), [({"is_paused": False}, [True, False]), ({"is_paused": True}, []), (None, [])])
def test_the_work_pool_takes_nothing_meanwhile(
    stack: Settings, prefect: Prefect, pool: dict[str, bool] | None, patched: list[bool]
) -> None:
    prefect.pool = pool
    stack.state.mkdir(parents=True)
    with pytest.raises(KeyError), pool_paused(stack):
        assert prefect.patched == patched[:1]
        raise KeyError
    assert prefect.patched == patched
    end_pause(stack)
    assert prefect.patched == patched and list(stack.state.iterdir()) == [], "once"


def test_a_pause_that_could_not_end_is_ended_by_the_next_up(stack: Settings, prefect: Prefect) -> None:
    stack.state.mkdir(parents=True)
    with pool_paused(stack):
        prefect.status = 500  # or the process is killed
    assert prefect.patched == [True, False]
    end_pause(stack)
    prefect.status = 204
    end_pause(stack)
    end_pause(stack)
    assert prefect.patched == [True, False, False, False]
