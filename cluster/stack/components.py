"""The components of the stack: the command, environment, ports and health check of each."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cluster.stack import postgresql
from cluster.stack.settings import HOST, POOL, POSTGRESQL, POSTGRESQL_USER, Settings

WORKER = "stack"  # the Prefect worker's name

NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback never goes through a proxy


@dataclass(frozen=True)
class Component:
    """One long-lived process. `answers(started)` is the health check; `started` is the Unix time of the process's start, s.

    slow_pulse: it answers only now and then, so that a running process is taken for one that answers.
    folder: its own while it runs: empty at its start, mode 0700, removed when it was stopped.
    user: as whom it runs instead of the user of the stack. It then gets none of that user's variables and none of their folders.
    """

    name: str
    title: str
    command: list[str]
    answers: Callable[[float], bool]
    ports: dict[str, int] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    slow_pulse: bool = False
    folder: Path | None = None
    user: str | None = None
    url: str | None = None  # of PostgreSQL: the folder of its socket
    start_timeout_s: float = 300.0  # long, since a busy machine is slow; a component that dies is noticed at once
    stop_grace_s: float = 10.0
    stop_signal: int = signal.SIGTERM


def components(settings: Settings) -> list[Component]:
    """The components in the order of their start. They stop in reverse order."""
    database = [_postgresql(settings)] if settings.database == POSTGRESQL else []
    return [*database, _prefect(settings), _mlflow(settings), _ray(settings), _worker(settings)]


def _postgresql(settings: Settings) -> Component:
    return Component(
        name="postgresql",
        title="PostgreSQL",
        command=postgresql.server(settings),
        answers=lambda _: postgresql.answers(settings),
        folder=settings.postgresql_socket,
        url=str(settings.postgresql_socket),
        user=None if os.getuid() else POSTGRESQL_USER,
        stop_grace_s=30.0,  # it writes what it holds in memory
        stop_signal=signal.SIGINT,  # SIGTERM would wait for everybody who is connected
    )


def _database(settings: Settings) -> tuple[str, ...]:
    """What Prefect and MLflow need."""
    return (POSTGRESQL,) if settings.database == POSTGRESQL else ()


def _prefect(settings: Settings) -> Component:
    port = settings.ports["prefect"]
    database = [settings.prefect_database] if settings.prefect_database else []  # in the command, so that another restarts it
    return Component(
        name="prefect",
        title="Prefect server",
        command=[sys.executable, "-m", "cluster.stack.prefect_server", str(port), *database],
        ports={"prefect": port},
        environment={
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"{settings.prefect_url},http://localhost:{port}",  # the default allows every site
            "PREFECT_SERVER_API_HOST": HOST,
            "PREFECT_SERVER_API_PORT": str(port),
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
            # logs for `prefect deployment run --watch`, which shows events alone otherwise
            "PREFECT_SERVER_LOGS_STREAM_OUT_ENABLED": "true",
            "PREFECT_SERVER_LOGS_STREAM_PUBLISHING_ENABLED": "true",
            "PREFECT_SERVER_DATABASE_TIMEOUT": "30",  # s; SQLite has one writer at a time
        },
        needs=_database(settings),
        url=settings.prefect_url,
        answers=lambda _: get(f"{settings.prefect_url}/api/health")[0] == 200,
    )


def _mlflow(settings: Settings) -> Component:
    port = settings.ports["mlflow"]
    return Component(
        name="mlflow",
        title="MLflow server",
        command=[
            *(sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"),
            *("--backend-store-uri", settings.mlflow_database),
            # files instead of the server's proxy, because runs are also logged without a server
            *("--default-artifact-root", str(settings.artifacts), "--no-serve-artifacts"),
        ],
        ports={"mlflow": port},
        environment={"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},  # else it starts seven helper processes of 176 MB
        needs=_database(settings),
        url=settings.mlflow_url,
        answers=lambda _: get(f"{settings.mlflow_url}/health")[0] == 200,
    )


def _ray(settings: Settings) -> Component:
    ports = {name: settings.ports[name] for name in ("ray", "ray_dashboard", "ray_client")}
    return Component(
        name="ray",
        title="Ray head",
        command=[
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *(f"--node-ip-address={HOST}", f"--port={ports['ray']}", f"--ray-client-server-port={ports['ray_client']}"),
            *(f"--dashboard-host={HOST}", f"--dashboard-port={ports['ray_dashboard']}", "--dashboard-agent-listen-port=0"),
            *("--min-worker-port=0", "--max-worker-port=0"),  # any free port, so that two heads on a machine do not conflict
            *(f"--temp-dir={settings.ray_temp}", f"--object-store-memory={200 * 1000**2}"),  # bytes; trials pass no objects
            *("--disable-usage-stats", "--log-style=record", "--log-color=false"),
        ],
        ports=ports,
        environment={
            # On Linux Ray replaces --node-ip-address=127.0.0.1 by the machine's address, and GCS, raylet and agents listen on every
            # interface. This switch, named after other systems, makes Ray keep the loopback address.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "AUTOSCALER_METRIC_PORT": "0",  # 0: any free port, else 44217 and 44227 on every head
            "DASHBOARD_METRIC_PORT": "0",
            # Else workers for all CPUs start with the first job, each of 50 MB; a trial needs none, or one for each of its ranks
            "RAY_prestart_worker_first_driver": "0",
        },
        folder=settings.ray_temp.parent,
        url=settings.ray_url,
        answers=lambda _: _ray_answers(settings),
        stop_grace_s=15.0,
    )


def _worker(settings: Settings) -> Component:
    return Component(
        name="worker",
        title="Prefect worker",
        command=[
            *(sys.executable, "-m", "prefect", "worker", "start", "--name", WORKER, "--pool", POOL),
            *("--type", "process", "--install-policy", "never"),
        ],
        environment={"PREFECT_WORKER_QUERY_SECONDS": "2"},
        needs=("prefect", "mlflow", "ray"),  # a flow that waits starts at once
        slow_pulse=True,  # a heartbeat every 30 s
        answers=lambda started: _worker_answers(settings, started),
        stop_grace_s=30.0,
    )


def _ray_answers(settings: Settings) -> bool:
    """True if jobs can be listed with the token. Raises PermissionError if they can be listed without it."""
    url = f"{settings.ray_url}/api/jobs/"
    if get(url)[0] == 200:
        raise PermissionError("the Ray head takes jobs without its token; it must not run like this")
    return get(url, {"Authorization": f"Bearer {settings.token.read_text().strip()}"})[0] == 200


def _worker_answers(settings: Settings, started: float) -> bool:
    status, workers = post(f"{settings.prefect_url}/api/work_pools/{POOL}/workers/filter", {})
    return status == 200 and any(
        worker["name"] == WORKER
        and worker["status"] == "ONLINE"
        and datetime.fromisoformat(worker["last_heartbeat_time"]).timestamp() >= started
        for worker in workers
    )


def get(url: str, headers: dict[str, str] | None = None, timeout_s: float = 5.0) -> tuple[int, Any]:
    """HTTP status and body of a GET request; the body is parsed if it is JSON. Status 0 if nothing answers within `timeout_s`."""
    return _request(urllib.request.Request(url, headers=headers or {}), timeout_s)  # noqa: S310 - our own http:// URLs


def post(url: str, body: object, method: str = "POST", timeout_s: float = 5.0) -> tuple[int, Any]:
    """As `get`, with the JSON body `body` and another method."""
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    return _request(urllib.request.Request(url, data=data, headers=headers, method=method), timeout_s)  # noqa: S310


def _request(request: urllib.request.Request, timeout_s: float) -> tuple[int, Any]:
    try:
        with NO_PROXY.open(request, timeout=timeout_s) as reply:
            status, text = reply.status, reply.read()
    except urllib.error.HTTPError as error:
        with error:
            status, text = error.code, error.read()
    except OSError:
        return 0, None
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text.decode(errors="replace")
