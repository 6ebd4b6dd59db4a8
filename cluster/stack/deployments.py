"""Set up Prefect once its server answers: the work pool, the deployments of prefect.yaml, and prefect.toml for the `prefect` command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cluster.stack.components import get, post
from cluster.stack.errors import StackError
from cluster.stack.settings import POOL, Settings

_HEADER = "# Written by `make up`, removed by `make down`: points the prefect command, run in this folder, at the local stack."

_PAUSED = "work_pool_paused"  # in the stack's folder, while `pool_paused` has it paused


def create_pool(settings: Settings) -> bool:
    """Create the process work pool if it does not exist; True if this call created it. Raises StackError.

    It runs one flow at a time, since two sweeps on one machine would disturb each other's measurements. The limit counts running
    flows. Unlike a deployment's slots it is free again as soon as Prefect notices that a killed flow has crashed.
    """
    url = f"{settings.prefect_url}/api/work_pools/"
    status, _ = get(f"{url}{POOL}")
    if status == 200:
        return False
    status, reply = post(url, {"name": POOL, "type": "process", "concurrency_limit": 1, "description": "Flows run on this machine"})
    if status not in (201, 409):  # 409: somebody else was first
        raise StackError(f"the Prefect server did not create work pool {POOL}: HTTP {status} {reply}")
    return status == 201


@contextmanager
def pool_paused(settings: Settings) -> Iterator[None]:
    """Inside the block the worker takes no further flow run from the work pool: it would be killed with the worker.

    What waits starts after the next `up`. A pool that somebody had paused stays so. Where Prefect does not answer nothing changes. Killed
    in the block, it leaves the pool paused, and a file by which `end_pause` knows.
    """
    url, paused = f"{settings.prefect_url}/api/work_pools/{POOL}", settings.state / _PAUSED
    status, pool = get(url)
    pause = status == 200 and not pool["is_paused"]
    if pause:
        paused.touch()
        post(url, {"is_paused": True}, method="PATCH")
    try:
        yield
    finally:
        if pause:
            end_pause(settings)


def end_pause(settings: Settings) -> None:
    """Let the work pool go on if `pool_paused` paused it. Where Prefect does not take that, the next call tries again."""
    paused = settings.state / _PAUSED
    if paused.exists():
        status, _ = post(f"{settings.prefect_url}/api/work_pools/{POOL}", {"is_paused": False}, method="PATCH")
        if status // 100 == 2 or status == 404:
            paused.unlink()


def register(settings: Settings, environment: Mapping[str, str]) -> list[str]:
    """Register every deployment of prefect.yaml and return their names, `flow/deployment`. Raises StackError with Prefect's message."""
    if not (settings.root / "prefect.yaml").is_file():
        return []
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    process = subprocess.run(
        command,
        cwd=settings.root,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    (settings.state / "deploy.log").write_text(process.stdout + process.stderr)
    if process.returncode != 0:
        tail = "\n".join((process.stdout + process.stderr).strip().splitlines()[-15:])
        raise StackError(f"prefect.yaml could not be deployed (all of it in {settings.state / 'deploy.log'}):\n{tail}")
    return names(settings)


def names(settings: Settings) -> list[str]:
    """The names of the deployments on the server, `flow/deployment`, sorted. Raises StackError."""
    status, deployments = post(f"{settings.prefect_url}/api/deployments/filter", {})
    status_of_flows, flows = post(f"{settings.prefect_url}/api/flows/filter", {})
    if status != 200 or status_of_flows != 200:
        raise StackError(f"the Prefect server does not list its deployments: HTTP {status}, {status_of_flows}")
    flow = {item["id"]: item["name"] for item in flows}
    return sorted(f"{flow[item['flow_id']]}/{item['name']}" for item in deployments)


def write_prefect_toml(settings: Settings) -> bool:
    """Point the `prefect` command, run in the repository, at the stack. False if the user has a prefect.toml of their own."""
    path = settings.root / "prefect.toml"
    if path.exists() and not path.read_text().startswith(_HEADER):
        return False
    home = str(settings.runs / ".prefect").replace("\\", "\\\\").replace('"', '\\"')
    path.write_text(f'{_HEADER}\nhome = "{home}"\n\n[api]\nurl = "{settings.prefect_url}/api"\n')
    return True


def remove_prefect_toml(settings: Settings) -> None:
    """Remove prefect.toml if `write_prefect_toml` wrote it."""
    path = settings.root / "prefect.toml"
    if path.exists() and path.read_text().startswith(_HEADER):
        path.unlink()
