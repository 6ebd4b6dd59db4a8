"""Ask a pool whether it answers and what it has free. Fast: imports neither torch nor a Ray client."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from typing import Any

from cluster.pools.device_kinds import device_kinds
from cluster.pools.errors import PoolError, PoolRefused
from cluster.pools.placement import Placement, accelerator, needs, room
from cluster.pools.pool import Pool
from experiments.config.strict import Strict

_TIMEOUT_S = 5.0
PYTHONS = ((3, 11), (3, 12))  # what the worker's code runs on: `requires-python` of pyproject.toml


class PoolState(Strict):
    """A pool's answer. `total` and `free` count devices. A field is None where the pool does not say."""

    pool: str
    device: str
    address: str | None
    reachable: bool
    total: int | None = None
    free: int | None = None
    ray: str | None = None
    python: str | None = None
    problem: str | None = None


def probe(pool: Pool, timeout_s: float = _TIMEOUT_S) -> PoolState:
    """The pool's current state. Reports a PoolError in `problem` instead of raising it."""
    facts: dict[str, Any] = {"pool": pool.name, "device": pool.device, "address": pool.address}
    try:
        if pool.device not in device_kinds():
            raise PoolError(f"this version cannot run trials on device {pool.device}: there is no cluster/devices/{pool.device}.py")
        answer = _embedded(pool, timeout_s) if pool.embedded else _cluster(pool, timeout_s)
    except PoolError as error:
        return PoolState(**facts, reachable=False, problem=str(error))
    return PoolState(**facts, reachable=True, **answer)


def _embedded(pool: Pool, timeout_s: float) -> dict[str, Any]:
    count = {"cuda": _nvidia, "hpu": _habana}.get(pool.device)
    total, free = count(timeout_s) if count and not pool.emulated else (pool.capacity or os.cpu_count(), pool.capacity or os.cpu_count())
    return {"total": total, "free": free, **_versions(pool.python, timeout_s)}


def _versions(python: str | None, timeout_s: float) -> dict[str, Any]:
    if python is None or python == sys.executable:
        try:
            return {"python": platform.python_version(), "ray": metadata.version("ray")}
        except metadata.PackageNotFoundError:
            raise PoolError("ray is not installed here; `make sweep` installs it") from None
    code = "import platform, importlib.metadata as m; print(platform.python_version(), m.version('ray'))"
    versions = _run([python, "-c", code], timeout_s * 4, "set the pool's `python` to one that has ray").split()
    return {"python": versions[0], "ray": versions[1]}


def _nvidia(timeout_s: float) -> tuple[int, int]:
    """(GPUs visible to a process started here, those of them on which nothing computes)."""
    query = ["nvidia-smi", "--format=csv,noheader", "--query-gpu=index,uuid"]
    rows = [
        [cell.strip() for cell in line.split(",")] for line in _run(query, timeout_s * 4, "a CUDA driver is needed").splitlines() if line
    ]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",") if name.strip()]
        rows = [row for row in rows if any(name == row[0] or (name[:4] == "GPU-" and row[1].startswith(name)) for name in names)]
    if not rows:
        raise PoolError("this machine shows no GPU" + (f" (CUDA_VISIBLE_DEVICES={visible})" if visible is not None else ""))
    busy = _run(["nvidia-smi", "--format=csv,noheader", "--query-compute-apps=gpu_uuid"], timeout_s * 4, "").split()
    return len(rows), sum(row[1] not in busy for row in rows)


def _habana(timeout_s: float) -> tuple[int, None]:
    """(Gaudi accelerators here, None): hl-smi does not say which of them compute."""
    text = _run(["hl-smi", "-Q", "index", "-f", "csv,noheader"], timeout_s * 4, "the Gaudi software is needed")
    if not text.split():
        raise PoolError("this machine shows no Gaudi accelerator")
    return len(text.split()), None


def _run(command: list[str], timeout_s: float, hint: str) -> str:
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except FileNotFoundError:
        raise PoolError(f"{command[0]} is not on this machine; {hint}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PoolError(f"{command[0]} did not answer: {error}") from None
    if process.returncode:
        last = (process.stderr or process.stdout).strip().splitlines()[-1:] or ["no output"]
        raise PoolError(f"{command[0]} failed: {last[0][:200]}; {hint}")
    return process.stdout


def admit(pool: Pool, placement: Placement, timeout_s: float = _TIMEOUT_S * 2) -> None:
    """Check that `pool` can run a trial that requests `placement`. Done before submission: a job that Ray cannot place would wait silently.

    Raises PoolRefused where waiting does not help, PoolError where it may.
    """
    head = _Head(pool, timeout_s)
    if problem := _versions_problem(head.versions()):
        raise PoolRefused(f"pool {pool.name} at {head.url}: {problem}")
    try:
        nodes = head.nodes()
    except (PoolError, KeyError, TypeError, AttributeError):
        return  # an older head: it does not list its nodes
    workers_per_node = [room(placement, node["resources_total"]) for node in nodes]
    capacity = max(workers_per_node, default=0) if placement.nodes == 1 else sum(workers_per_node)
    if capacity < placement.workers and not pool.autoscales:
        per_worker = ", ".join(f"{name} {amount:g}" for name, amount in needs(placement).items())
        where = "no node" if placement.nodes == 1 else "the cluster"
        raise PoolError(f"pool {pool.name} at {head.url}: {where} has room for {placement.workers} worker(s) with {per_worker} each")


def lost_node(pool: Pool, node_id: str, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Why Ray has given this node up, as it says; None while it has not, and where the head does not tell."""
    try:
        node = next((one for one in _Head(pool, timeout_s).all_nodes() if one["node_id"] == node_id), None)
        return (node.get("state_message") or "Ray does not say why") if node and node["state"] == "DEAD" else None
    except (PoolError, KeyError, TypeError, AttributeError):
        return None


def _cluster(pool: Pool, timeout_s: float) -> dict[str, Any]:
    head = _Head(pool, timeout_s)
    versions: dict[str, Any] = head.versions()
    problem = _versions_problem(versions)
    try:
        devices = _count(pool, head.nodes(), head.usage())
    except (PoolError, KeyError, TypeError, AttributeError):
        return versions | {"problem": problem}  # an older head: it does not list its nodes
    return versions | devices | ({"problem": problem} if problem else {})


def _versions_problem(versions: dict[str, str | None]) -> str | None:
    """What is wrong with a cluster's versions; None if nothing is. The flow's Python may differ, since trials travel as JSON."""
    own = metadata.version("ray")
    ray, python = versions.get("ray"), versions.get("python")
    if ray and ray.split(".")[:2] != own.split(".")[:2]:
        minor = ".".join(own.split(".")[:2])
        return f"it runs Ray {ray}, sweepbench here {own}; put ray[default,train]=={minor}.* into the pool's image, or use its Ray here"
    if python and tuple(int(part) for part in python.split(".")[:2]) not in PYTHONS:
        supported = " or ".join(f"{major}.{minor}" for major, minor in PYTHONS)
        return f"it runs Python {python}; the worker needs {supported} in the pool's image"
    return None


def _count(pool: Pool, nodes: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
    """`total`, `free` and `problem` of PoolState, over the nodes that have every resource a worker of this pool requests."""
    device = accelerator(pool)
    required = {device, *pool.resources, *([f"accelerator_type:{pool.accelerator_type}"] if pool.accelerator_type else [])}
    suitable = [node for node in nodes if required <= set(node["resources_total"])]
    total = sum(int(node["resources_total"][device]) for node in suitable)
    free: int | None = 0
    for node in suitable:
        use = usage.get(node["node_id"], {}).get(device)
        free = None if free is None or use is None else free + int(use[1] - use[0])
    problem = None
    if not total:
        then = "one is added when a trial asks for it" if pool.autoscales else "trials wait until one joins"
        problem = f"no node has {' and '.join(sorted(required))} now; {then}"
    elif len(suitable) < pool.nodes and not pool.autoscales:
        problem = f"{len(suitable)} of {pool.nodes} nodes are there"
    return {"total": total, "free": free, "problem": problem}


class _Head:
    """HTTP requests to a Ray head. All methods raise PoolError or PoolRefused."""

    def __init__(self, pool: Pool, timeout_s: float) -> None:
        self.pool, self.url, self._token, self._timeout_s = pool, pool.url(), pool.token(), timeout_s

    def versions(self) -> dict[str, str | None]:
        """Versions of Ray and Python on the cluster; Python's is None where an older head does not report it."""
        versions = {"ray": self._get("/api/version").get("ray_version"), "python": None}
        with suppress(PoolError, KeyError, TypeError, AttributeError):
            versions["python"] = self._get("/api/v0/cluster_metadata")["data"].get("pythonVersion")
        return versions

    def nodes(self) -> list[dict[str, Any]]:
        """Live nodes, each with `node_id` and `resources_total`."""
        return [node for node in self.all_nodes() if node["state"] == "ALIVE"]

    def all_nodes(self) -> list[dict[str, Any]]:
        """Also those that Ray has given up, whose `state` is DEAD."""
        answer: list[dict[str, Any]] = self._get("/api/v0/nodes?detail=true&limit=10000")["data"]["result"]["result"]
        return answer

    def usage(self) -> dict[str, Any]:
        """Node id -> resource -> [used, total]."""
        status = self._get("/api/cluster_status")["data"].get("clusterStatus") or {}
        return (status.get("loadMetricsReport") or {}).get("usageByNode") or {}

    def _get(self, path: str) -> dict[str, Any]:
        return _get(self.pool, self.url, path, self._token, self._timeout_s)


def _get(pool: Pool, url: str, path: str, token: str | None, timeout_s: float) -> dict[str, Any]:
    """A JSON answer of the Ray dashboard. Follows no redirect, since the token is for this host only."""
    import requests  # takes 0.1 s to import; comes with ray[default]

    session = requests.Session()
    session.trust_env = False  # no ~/.netrc, which would replace the token
    session.proxies = requests.utils.get_environ_proxies(url)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    source = pool.token_file or (f"${pool.token_env}" if pool.token_env else "")
    try:
        with session, session.get(url + path, headers=headers, timeout=timeout_s, allow_redirects=False) as answer:
            if answer.status_code == 401:
                raise PoolRefused(f"{url} wants a token and got none; give the pool `token_env` or `token_file`")
            if answer.status_code == 403:
                raise PoolRefused(f"{url} refuses the token" + (f" in {source}" if source else ""))
            if answer.status_code != 200:
                raise PoolError(f"{url}{path} answers with status {answer.status_code}: not a Ray head of a version we know")
            data = answer.json()
    except requests.ConnectionError:
        hint = "; `make up` starts it" if pool.name == "local" else ""
        raise PoolError(f"{url} does not answer{hint}") from None
    except requests.Timeout:
        raise PoolError(f"{url} did not answer within {timeout_s:g} s") from None
    except (requests.RequestException, ValueError) as error:
        raise PoolError(f"{url} gave no proper answer: {type(error).__name__}") from None
    if not isinstance(data, dict):
        raise PoolError(f"{url}{path} is not a Ray head")
    return data
