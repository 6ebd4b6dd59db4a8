"""One real stack, up and down: everything answers, on loopback only, with its token; a deployment runs; nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from cluster.stack import settings
from tests.process_support import command_of
from tests.stack_support import NAMES, Stack, get, post, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Mended:
    """What `status` and `up` said after the MLflow server was killed; pids before and after."""

    before: dict[str, int]
    status: subprocess.CompletedProcess[str]
    up: subprocess.CompletedProcess[str]
    after: dict[str, int]


@pytest.fixture(scope="module")
def mended(stack: Stack) -> Mended:
    """A fixture, since what it starts stays until the stack goes down."""
    before = {name: row["pid"] for name, row in stack.status().items()}
    mlflow = psutil.Process(before["mlflow"])
    os.kill(mlflow.pid, signal.SIGKILL)
    until(lambda: not mlflow.is_running() or mlflow.status() == psutil.STATUS_ZOMBIE)
    status, up = stack.command("status", "--json"), stack.command("up")
    return Mended(before, status, up, {name: row["pid"] for name, row in stack.status().items()})


def test_everything_answers(stack: Stack) -> None:
    running = dict.fromkeys(NAMES, "running")
    until(lambda: {name: row["state"] for name, row in stack.status().items()} == running)  # a busy one answers late
    rows = stack.status()
    for name in ("prefect", "mlflow", "ray"):
        assert get(rows[name]["url"])[0] in (200, 401)
    assert stack.ray("/api/jobs/")[0] == 200


def test_only_loopback_listens(stack: Stack) -> None:
    members = {member.pid for member in stack.members()}
    listening = [c for c in psutil.net_connections("inet") if c.status == psutil.CONN_LISTEN and c.pid in members]
    assert set(stack.settings.ports.values()) <= {c.laddr.port for c in listening}
    assert {c.laddr.ip for c in listening} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def test_ray_wants_its_token(stack: Stack) -> None:
    job_without_token = "touch proof"
    job = {"entrypoint": job_without_token}
    assert stack.ray("/api/jobs/", job, token=None)[0] == 401
    assert stack.ray("/api/jobs/", job, token="0" * 64)[0] == 403
    taken = [job for job in stack.ray("/api/jobs/")[1] if job["entrypoint"] == job_without_token]
    assert not taken, "a job was taken without the token"
    assert stack.settings.token.stat().st_mode & 0o777 == 0o600
    assert stack.settings.ray_temp.parent.stat().st_mode & 0o777 == 0o700, "Ray's folder is for everybody, the one around it is not"
    assert next(stack.settings.ray_temp.glob("session_*")).is_dir()
    secret = stack.settings.token.read_text()
    assert not [member for member in stack.members() if secret in " ".join(command_of(member))]
    assert not [log for log in stack.settings.state.glob("*.log") if secret in log.read_text(errors="replace")]


@pytest.mark.parametrize("header", [("Host", "evil.example"), ("Origin", "http://evil.example")])
def test_foreign_pages_get_403(stack: Stack, header: tuple[str, str]) -> None:
    import http.client

    for name, path in (("prefect", "/api/flows/filter"), ("mlflow", "/api/2.0/mlflow/experiments/create")):
        connection = http.client.HTTPConnection("127.0.0.1", stack.settings.ports[name], timeout=120)
        own = {"Host": f"127.0.0.1:{stack.settings.ports[name]}", "Content-Type": "application/json"}
        connection.request("POST", path, body=json.dumps({"name": f"evil {header[0]}"}), headers={**own, header[0]: header[1]})
        assert connection.getresponse().status == 403, name
        connection.close()


def test_a_page_of_another_local_server_may_not_use_prefect(stack: Stack) -> None:
    """Whose API starts processes. MLflow takes every origin on this machine."""
    import http.client

    port = stack.settings.ports["prefect"]
    for origin, status in ((f"http://localhost:{port}", 200), ("http://127.0.0.1:8080", 403), ("http://localhost", 403)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("POST", "/api/flows/filter", body="{}", headers={"Content-Type": "application/json", "Origin": origin})
        assert connection.getresponse().status == status, origin
        connection.close()


def test_prefect_websocket_refuses_foreign_pages(stack: Stack) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect
    from websockets.typing import Origin

    url = f"ws://127.0.0.1:{stack.settings.ports['prefect']}/api/events/out"
    with pytest.raises(InvalidStatus) as refused:
        connect(url, origin=Origin("http://evil.example"), open_timeout=120, proxy=None)
    assert refused.value.response.status_code == 403
    connect(url, subprotocols=["prefect"], open_timeout=120, proxy=None).close()  # type: ignore[list-item]


def test_deployment_runs_as_typed_in_the_repository(stack: Stack) -> None:
    """Only prefect.toml says where the server is; the user's home stays as it is."""
    done = stack.prefect("deployment", "run", "sweep/bridgetower", "--watch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((stack.root / "seen.json").read_text()) == {
        "suite": "bridgetower",
        "folder": str(stack.root),
        "python": sys.executable,
        "MLFLOW_TRACKING_URI": stack.settings.mlflow_url,
        "SWEEPBENCH_LOCAL_ADDRESS": stack.settings.ray_url,
        "SWEEPBENCH_RUNS": str(stack.settings.runs),
        "RAY_AUTH_TOKEN_PATH": str(stack.settings.token),
        "DO_NOT_TRACK": "true",
    }
    assert not (Path(stack.typed["HOME"]) / ".prefect").exists()
    assert not (Path(stack.typed["HOME"]) / ".ray").exists()


def test_pool_takes_one_flow_at_a_time(stack: Stack) -> None:
    pool = get(f"{stack.settings.prefect_url}/api/work_pools/local")[1]
    assert (pool["type"], pool["concurrency_limit"]) == ("process", 1)


def test_environment_beside_the_stack_points_at_it(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the ports of the environment are not those it was started with: the records know."""
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(stack.settings.runs))
    variables = settings.environment(stack.root)
    assert variables["MLFLOW_TRACKING_URI"] == stack.settings.mlflow_url
    assert variables["PREFECT_API_URL"] == f"{stack.settings.prefect_url}/api"


def test_up_again_mends_what_died_and_leaves_the_rest(stack: Stack, mended: Mended) -> None:
    assert mended.status.returncode == 1
    assert {row["name"]: row["state"] for row in json.loads(mended.status.stdout)}["mlflow"] == "dead"
    assert mended.up.returncode == 0, mended.up.stderr
    assert f"MLflow server: pid {mended.before['mlflow']} no longer runs" in mended.up.stdout
    assert mended.up.stdout.count("already running") == 3
    assert {name for name in NAMES if mended.after[name] != mended.before[name]} == {"mlflow"}
    assert post(f"{stack.settings.mlflow_url}/api/2.0/mlflow/experiments/search", {"max_results": 1})[0] == 200
