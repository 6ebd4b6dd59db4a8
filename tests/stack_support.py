"""The long-lived stack as tests use it: a repository with two deployments, one of them the real flow, and the stack brought up in it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from cluster.stack import components, process
from cluster.stack.settings import PORTS, Settings
from tests.cli_support import heed_ctrl_c
from tests.process_support import command_of

EXTRA = Path(__file__).parent / "workloads_for_tests"
NAMES = ("prefect", "mlflow", "ray", "worker")

FLOW = """
import json, os, subprocess, sys
from pathlib import Path
from prefect import flow, task

@task
def look() -> dict:
    names = ("MLFLOW_TRACKING_URI", "SWEEPBENCH_LOCAL_ADDRESS", "SWEEPBENCH_RUNS", "RAY_AUTH_TOKEN_PATH", "DO_NOT_TRACK")
    return {"folder": os.getcwd(), "python": sys.executable, **{name: os.environ.get(name) for name in names}}

@flow
def sweep(suite: str, pools: list[str] = []) -> None:
    Path("seen.json").write_text(json.dumps({"suite": suite, **look()}))
"""

PREFECT_YAML = """
pull:
  - prefect.deployments.steps.set_working_directory:
      directory: "{{ $SWEEPBENCH_ROOT }}"
deployments:
  - name: bridgetower
    entrypoint: tiny.py:sweep
    parameters: {suite: bridgetower, pools: [local]}
    work_pool: {name: local}
  - name: real
    entrypoint: real.py:sweep
    parameters: {suite: two, pools: [local]}
    work_pool: {name: local}
"""

# A process that leaves its session, as a workload may; it must not outlive the stack
LEAVER = "import subprocess, time; subprocess.Popen(['sleep', '1000'], start_new_session=True); print('out'); time.sleep(1000)"


class Stack:
    """A repository, and the stack brought up in it."""

    def __init__(self, root: Path, variables: dict[str, str]) -> None:
        self.root, self.variables = root, {**os.environ, **variables}
        self.settings = Settings(root, root / "runs", {name: int(variables[variable]) for name, (variable, _) in PORTS.items()})

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cluster.stack", "--root", str(self.root), *arguments]
        return subprocess.run(
            command,
            env=self.variables,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
            preexec_fn=heed_ctrl_c,  # else the Prefect worker that `up` starts may be deaf to SIGTERM, which it passes on as SIGINT
        )

    def status(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in json.loads(self.command("status", "--json").stdout)}

    def members(self) -> list[psutil.Process]:
        records = [process.read_record(self.settings.state, name) for name in NAMES]
        return [member for record in records if record for member in process.members(record)]

    def ray(self, path: str, body: object | None = None, token: str | None = "") -> tuple[int, Any]:
        """A request to the Ray head: with its token (""), another, or none (None)."""
        import urllib.error
        import urllib.request

        request = urllib.request.Request(f"{self.settings.ray_url}{path}", data=json.dumps(body).encode() if body else None)
        request.add_header("Content-Type", "application/json")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token or self.settings.token.read_text()}")
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    @property
    def typed(self) -> dict[str, str]:
        """The environment of a command that a user types in the repository: only prefect.toml says where the server is."""
        return {name: value for name, value in self.variables.items() if not name.startswith(("PREFECT_", "SWEEPBENCH_"))}

    def prefect(self, *arguments: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
        """`prefect ARGUMENTS`, typed in the repository."""
        command = [sys.executable, "-m", "prefect", *arguments]
        return subprocess.run(command, env=self.typed, cwd=self.root, capture_output=True, text=True, check=False, timeout=timeout)


def get(url: str) -> tuple[int, Any]:
    """As the stack's own, and waits as long as a server of a busy machine may take."""
    return components.get(url, timeout_s=120.0)


def post(url: str, body: object) -> tuple[int, Any]:
    """As `get`, with a JSON body."""
    return components.post(url, body, timeout_s=120.0)


def goes_down(stack: Stack) -> None:
    """Also with a job that runs and has a child in a session of its own."""
    status, job = stack.ray("/api/jobs/", {"entrypoint": shlex.join([sys.executable, "-u", "-c", LEAVER])})
    assert status == 200, job
    until(lambda: "out" in stack.ray(f"/api/jobs/{job['submission_id']}/logs")[1]["logs"])
    members = stack.members()
    assert any(command_of(member)[:1] == ["sleep"] for member in members)
    down = stack.command("down")
    assert down.returncode == 0, down.stderr
    assert not [member for member in members if member.is_running() and member.status() != psutil.STATUS_ZOMBIE]
    assert not (stack.root / "prefect.toml").exists()
    assert not stack.settings.ray_temp.parent.exists()
    again = stack.command("down")
    assert (again.returncode, again.stdout.strip()) == (0, "the stack is not running")


def until(condition: Any, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.1)
