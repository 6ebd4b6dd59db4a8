"""Real Ray clusters on loopback, each a head with a token of its own; the pools file that names them; two of them for all tests."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.process_variables import variables
from tests.ports_support import free_ports
from tests.s3_support import s3_server
from tests.shared_support import kept

HOST = "127.0.0.1"
MARK = "SWEEPBENCH_STACK"  # tests/conftest.py leaves what carries it to its fixture


class Cluster:
    """A Ray head started from `python`'s Ray. Its folder must be short: sockets have paths of at most 107 bytes."""

    def __init__(
        self,
        name: str,
        *,
        python: str = sys.executable,
        resources: dict[str, float] | None = None,
        cpus: int = 4,
        nodes: bool = False,
        **more: str,
    ) -> None:
        self.name, self.python = name, python
        self.resources, self.cpus = resources or {}, cpus
        # Stay on the loopback address. Ray then takes no further node, so a cluster of several listens on all interfaces, behind its token
        self.more = more if nodes else {**more, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        self.folder = Path(tempfile.mkdtemp(prefix=f"sb-{name}-"))
        self.token = self.folder / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32))
        self.port, self.dashboard, self.client = free_ports(3)
        self.mark = secrets.token_hex(8)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.dashboard}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "AUTOSCALER_METRIC_PORT": "0",
            "DASHBOARD_METRIC_PORT": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "240",
            "RAY_gcs_server_request_timeout_seconds": "240",
            "OMP_NUM_THREADS": "1",
            "RAY_prestart_worker_first_driver": "0",  # a worker for each CPU, seconds of one, none of which a job here uses
            "PATH": f"{Path(self.python).parent}:{os.environ['PATH']}",
            MARK: self.mark,
            "SPT_NOENV": "1",  # titles must not be written over the environment in which the mark is looked for
            **self.more,
        }

    def start(self) -> None:
        """Start the head, and return once it takes jobs with its token.

        Ray gives a raylet 30 s to start, in its code; on a busy machine that may not be enough, so it is tried again.
        """
        arguments = ["--head", f"--port={self.port}", "--dashboard-host=127.0.0.1", f"--dashboard-port={self.dashboard}"]
        arguments += [f"--ray-client-server-port={self.client}", f"--temp-dir={self.folder}/r", f"--resources={json.dumps(self.resources)}"]
        tries = 4
        while not self._ray(*arguments):
            self.stop()
            tries -= 1
            assert tries, self._said()
        self.wait()

    def add_node(self, resources: dict[str, float], cpus: int = 2, **more: str) -> None:
        """One more raylet on this machine, for a cluster of several nodes. `more`: variables of its own."""
        assert self._ray(f"--address={HOST}:{self.port}", f"--resources={json.dumps(resources)}", cpus=cpus, **more), self._said()

    def _said(self) -> str:
        return (self.folder / "start.log").read_text()[-3000:]

    def _ray(self, *arguments: str, cpus: int | None = None, **more: str) -> bool:
        """True if `ray start` did."""
        common = ["--disable-usage-stats", f"--node-ip-address={HOST}", f"--num-cpus={cpus or self.cpus}"]
        common += [
            "--dashboard-agent-listen-port=0",
            "--min-worker-port=0",
            "--max-worker-port=0",
            f"--object-store-memory={100 * 1000**2}",
        ]
        with open(self.folder / "start.log", "ab") as log:
            done = subprocess.run(
                [self.python, "-m", "ray.scripts.scripts", "start", *arguments, *common],
                env={**self.environment, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
                timeout=400,
            )
        return done.returncode == 0

    def wait(self, timeout_s: float = 240) -> None:
        deadline = time.monotonic() + timeout_s
        while self.get("/api/jobs/")[0] != 200:
            assert time.monotonic() < deadline, self._said()
            time.sleep(0.2)

    def get(self, path: str, body: object | None = None, token: str | None = "", timeout_s: float = 5) -> tuple[int, Any]:
        """A request with the cluster's token (""), another, or none (None); status 0 where nothing answers in time."""
        request = urllib.request.Request(self.url + path, data=json.dumps(body).encode() if body is not None else None)
        request.add_header("Content-Type", "application/json")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token or self.token.read_text()}")
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, None

    def jobs(self) -> dict[str, str]:
        """Submission id -> status of every job."""
        return {job["submission_id"]: job["status"] for job in self.get("/api/jobs/", timeout_s=120)[1]}

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if variables(process).get(MARK) == self.mark:
                    found.append(process)
        return found

    def has_head(self) -> bool:
        """True while its GCS runs, which a head is nothing without."""
        with contextlib.suppress(psutil.Error):
            return any("gcs_server" in " ".join(process.cmdline()) for process in self.processes())
        return self.has_head()  # one ended just now

    def kill(self, name: str = "") -> int:
        """SIGKILL to the cluster's own processes whose command holds `name`; how many there were."""
        killed = 0
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if name in " ".join(process.cmdline()):
                    process.send_signal(signal.SIGKILL)
                    killed += 1
        return killed

    def drain(self, resource: str) -> int:
        """Announce the end of the nodes that have `resource`, then end them, as a cloud that takes them back; how many there were."""
        nodes = self.get("/api/v0/nodes?detail=true", timeout_s=120)[1]["data"]["result"]["result"]
        ids = [node["node_id"] for node in nodes if node["state"] == "ALIVE" and resource in node["resources_total"]]
        for node in ids:
            reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot"]
            command = ["drain-node", "--address", f"{HOST}:{self.port}", "--node-id", node, *reason, "--deadline-remaining-seconds", "1"]
            ray = [self.python, "-m", "ray.scripts.scripts", *command]
            subprocess.run(ray, env=self.environment, check=True, capture_output=True, timeout=120)
        time.sleep(1)  # the notice that it gives
        assert self.kill(f"{resource},") >= len(ids)  # a raylet's command has its resources
        return len(ids)

    def stop(self) -> None:
        """End every process of the cluster; its folder and token stay, so that it can be started again."""
        for _ in range(10):
            if not self.kill():
                break
            psutil.wait_procs(self.processes(), timeout=30)
        shutil.rmtree(self.folder / "r", ignore_errors=True)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def entry(self, **more: Any) -> dict[str, Any]:
        """Its entry of a pools file."""
        values = {"device": "cpu", "address": self.url, "token_file": str(self.token), "accelerators_per_node": 4, "python": self.python}
        return {**values, **more}


class Clusters:
    """Two clusters, `a` with its trials' files on an S3 and `b` with a folder that it shares with the flow."""

    def __init__(self, storage: str) -> None:
        credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        second = os.environ.get("SECOND_CLUSTER_PYTHON") or sys.executable  # another environment, as another pool's image has
        self.a = Cluster("a", resources={"bench_a": 2}, **credentials)
        self.b = Cluster("b", python=second, resources={"bench_b": 2})
        self.storage, self.credentials = storage, credentials

    def entries(self) -> dict[str, dict[str, Any]]:
        """Entries of a pools file."""
        common = {"accelerators_per_node": 2}
        return {
            "a": self.a.entry(resources={"bench_a": 1}, storage=self.storage, **common),
            "b": self.b.entry(resources={"bench_b": 1}, **common),
        }


def write_pools(path: Path, entries: dict[str, dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"pools": entries}, indent=1))  # JSON is YAML, without aliases
    return path


@pytest.fixture(scope="session")
def started_clusters() -> Iterator[Clusters]:
    """Both clusters, for the whole session."""
    with kept("clusters") as ends:
        made = Clusters(ends.enter_context(s3_server()))
        for cluster in (made.a, made.b):
            ends.callback(cluster.close)
        with ThreadPoolExecutor(2) as threads:
            for started in [threads.submit(cluster.start) for cluster in (made.a, made.b)]:
                started.result()
        yield made


@pytest.fixture
def clusters(started_clusters: Clusters) -> Clusters:
    """Both clusters, which take jobs; one that an earlier test killed is started again."""
    for cluster in (started_clusters.a, started_clusters.b):
        if not cluster.has_head():
            cluster.stop()
            cluster.start()
    return started_clusters
