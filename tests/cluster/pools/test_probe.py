"""What a pool is said to have: of a Ray head that answers, refuses or is something else, and of this machine."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cluster.pools import probe as module
from cluster.pools.pool import Pool
from cluster.pools.probe import PoolState, lost_node
from tests.cluster.pools.pool_support import TOKEN, pool

# Answers of a Ray 2.60 head that had 2 CPUs and 2 of the custom resource gaudi2, one CPU and one gaudi2 in use
NODE = {"node_id": "ab", "state": "ALIVE", "resources_total": {"CPU": 2.0, "gaudi2": 2.0, "memory": 17108163789.0}}
ANSWERS: dict[str, Any] = {
    "/api/version": {"version": "4", "ray_version": "2.60.0", "ray_commit": "b7f4", "session_name": "s"},
    "/api/v0/cluster_metadata": {"result": True, "msg": "", "data": {"rayVersion": "2.60.0", "pythonVersion": "3.11.7"}},
    "/api/v0/nodes": {
        "result": True,
        "msg": "",
        "data": {"result": {"total": 1, "result": [NODE, {**NODE, "node_id": "cd", "state": "DEAD"}]}},
    },
    "/api/cluster_status": {
        "result": True,
        "data": {"clusterStatus": {"loadMetricsReport": {"usageByNode": {"ab": {"CPU": [1.0, 2.0], "gaudi2": [1.0, 2.0]}}}}},
    },
}
Serve = Callable[..., str]
probe = partial(module.probe, timeout_s=60.0)  # a server in a thread of a busy machine may answer late


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts an HTTP server that answers like a Ray head with token authentication; gives its URL."""
    servers = []

    def start(answers: dict[str, Any] = ANSWERS, token: str | None = TOKEN, redirect: str | None = None) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                given = self.headers.get("Authorization")
                answer = answers.get(self.path.partition("?")[0])
                status = 302 if redirect else 401 if token and not given else 403 if token and given != f"Bearer {token}" else 200
                status = 404 if status == 200 and answer is None else status
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                if redirect:
                    self.send_header("Location", redirect)
                self.send_header("Content-Length", str(len(body) if status == 200 else 0))
                self.end_headers()
                if status == 200:
                    self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("THE_TOKEN", TOKEN)
    return "THE_TOKEN"


@pytest.mark.parametrize(
    ("node", "why"),
    [("ab", None), ("cd", "Ray does not say why"), ("ef", "health check failed"), ("unknown", None)],
)
def test_a_node_that_ray_has_given_up(serve: Serve, token: str, node: str, why: str | None) -> None:
    nodes = [NODE, {**NODE, "node_id": "cd", "state": "DEAD"}, {"node_id": "ef", "state": "DEAD", "state_message": "health check failed"}]
    answers = {"/api/v0/nodes": {"result": True, "msg": "", "data": {"result": {"total": 3, "result": nodes}}}}
    assert lost_node(pool(address=serve(answers), token_env=token), node) == why
    assert lost_node(pool(address=serve({}), token_env=token), node) is None, "it does not list its nodes"


def test_a_cluster_says_what_it_has(serve: Serve, token: str) -> None:
    found = probe(pool(address=serve(), token_env=token, resources={"gaudi2": 1}))
    assert found == PoolState(
        pool="p", device="cpu", address=found.address, reachable=True, total=2, free=1, ray="2.60.0", python="3.11.7", problem=None
    )


def test_a_cluster_without_such_a_node(serve: Serve, token: str) -> None:
    found = probe(pool(device="cuda", address=serve(), token_env=token, accelerator_type="A100"))
    assert (found.reachable, found.total, found.free) == (True, 0, 0)
    assert found.problem == "no node has GPU and accelerator_type:A100 now; trials wait until one joins"


def test_a_cluster_with_fewer_nodes_than_said_or_with_nodes_to_come(serve: Serve, token: str) -> None:
    said = {"token_env": token, "resources": {"gaudi2": 1}, "nodes": 3, "accelerators_per_node": 2}
    url = serve()
    assert probe(pool(address=url, **said)).problem == "1 of 3 nodes are there"
    assert probe(pool(address=url, **said, autoscales=True)).problem is None
    none = probe(pool(address=url, token_env=token, device="cuda", autoscales=True)).problem
    assert none == "no node has GPU now; one is added when a trial asks for it"


def test_versions_that_do_not_fit_are_named(serve: Serve, token: str) -> None:
    old = {**ANSWERS, "/api/version": {"ray_version": "2.44.0"}}
    found = probe(pool(address=serve(old), token_env=token))
    assert found.reachable and found.problem is not None
    assert found.problem.startswith("it runs Ray 2.44.0, sweepbench here ") and "put ray[default,train]==" in found.problem


def test_a_head_that_tells_only_its_version(serve: Serve) -> None:
    found = probe(pool(address=serve({"/api/version": ANSWERS["/api/version"]}, token=None)))
    assert (found.reachable, found.ray, found.total, found.problem) == (True, "2.60.0", None, None)


def test_a_head_that_does_not_say_what_is_in_use(serve: Serve) -> None:
    found = probe(pool(address=serve({**ANSWERS, "/api/cluster_status": {"data": {"clusterStatus": None}}}, token=None)))
    assert (found.total, found.free) == (2, None)


def test_refusals_are_clear_and_keep_the_token(serve: Serve, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = serve()
    assert _problem(pool(address=url)) == f"{url} wants a token and got none; give the pool `token_env` or `token_file`"
    monkeypatch.setenv(token, "wrong-token")
    assert _problem(pool(address=url, token_env=token)) == f"{url} refuses the token in $THE_TOKEN"
    monkeypatch.delenv(token)
    assert "no token in environment variable THE_TOKEN" in _problem(pool(address=url, token_env=token))


def test_something_else_answers(serve: Serve, token: str) -> None:
    elsewhere = serve(token=None)
    url = serve(redirect=elsewhere + "/api/version")
    assert _problem(pool(address=url, token_env=token)) == f"{url}/api/version answers with status 302: not a Ray head of a version we know"
    url = serve({"/api/version": b"<html>"}, token=None)
    assert "gave no proper answer" in _problem(pool(address=url))
    url = serve({"/api/version": [1]}, token=None)
    assert "is not a Ray head" in _problem(pool(address=url))


def test_nobody_answers(serve: Serve) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:  # listens, never answers
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert probe(pool(address=url), timeout_s=0.2).problem == f"{url} did not answer within 0.2 s"
    assert _problem(pool(address=url)) == f"{url} does not answer"
    assert _problem(pool(name="local", address=url)) == f"{url} does not answer; `make up` starts it"


def _problem(of: Pool) -> str:
    found = probe(of)
    assert not found.reachable and found.total is None and found.problem
    assert TOKEN not in found.model_dump_json()
    return found.problem


def test_this_machines_cpus() -> None:
    found = probe(pool(accelerators_per_node=3))
    assert (found.reachable, found.total, found.free) == (True, 3, 3) and found.ray and found.python
    assert probe(pool()).total == os.cpu_count()
    assert "not on this machine; set the pool's `python`" in _problem(pool(python="/nowhere/python"))


def test_a_device_that_this_version_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpu.py").write_text("\ndef open_device(rank): ...\n")
    monkeypatch.setattr("cluster.pools.device_kinds._DEVICES", tmp_path)
    assert probe(pool()).reachable
    assert "there is no cluster/devices/cuda.py" in _problem(pool(device="cuda"))


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts programs on an otherwise empty PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def put(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(stat.S_IRWXU)

    return put


NVIDIA_SMI = """
case "$*" in
  *query-gpu*) echo "0, GPU-aaaa"; echo "1, GPU-bbbb"; echo "2, GPU-cccc";;
  *query-compute-apps*) echo "GPU-bbbb";;
  *) exit 3;;
esac"""


def test_this_machines_gpus(tools: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = pool(device="cuda")
    assert _problem(cuda) == "nvidia-smi is not on this machine; a CUDA driver is needed"
    tools("nvidia-smi", NVIDIA_SMI)
    for visible, expected in [(None, (3, 2)), ("1,2", (2, 1)), ("GPU-bb", (1, 0))]:
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found = probe(cuda)
        assert (found.total, found.free) == expected
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert _problem(cuda) == "this machine shows no GPU (CUDA_VISIBLE_DEVICES=)"
    tools("nvidia-smi", "echo 'NVIDIA-SMI has failed: driver not loaded' >&2; exit 9")
    assert _problem(cuda) == "nvidia-smi failed: NVIDIA-SMI has failed: driver not loaded; a CUDA driver is needed"


def test_this_machines_gaudis(tools: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.pools.probe.device_kinds", lambda: ["hpu"])
    hpu = pool(device="hpu")
    assert "hl-smi is not on this machine" in _problem(hpu)
    tools("hl-smi", "echo 0; echo 1")
    found = probe(hpu)
    assert (found.reachable, found.total, found.free) == (True, 2, None)
    tools("hl-smi", "true")
    assert _problem(hpu) == "this machine shows no Gaudi accelerator"
    assert probe(pool(device="hpu", emulated=True, accelerators_per_node=1)).total == 1
