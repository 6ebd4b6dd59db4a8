"""What follows once the servers answer: the work pool, the deployments of prefect.yaml, and where the `prefect` command finds them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from cluster.stack.components import get, post
from cluster.stack.errors import StackError
from cluster.stack.settings import POOL, Settings

_HEADER = "# Written by `make up`, removed by `make down`: points the prefect command, run in this folder, at the local stack."


def create_pool(settings: Settings) -> bool:
    """Make the process work pool unless it is there; True if it was made. Raises StackError.

    One flow at a time: two sweeps on one machine would disturb each other's measurements. The limit counts running flows and
    so, unlike a deployment's slots, is free again as soon as a killed flow is seen to have crashed.
    """
    url = f"{settings.prefect_url}/api/work_pools/"
    status, _ = get(f"{url}{POOL}")
    if status == 200:
        return False
    status, reply = post(url, {"name": POOL, "type": "process", "concurrency_limit": 1, "description": "Flows run on this machine"})
    if status not in (201, 409):  # 409: somebody else was first
        raise StackError(f"the Prefect server did not create work pool {POOL}: HTTP {status} {reply}")
    return status == 201


def register(settings: Settings, environment: Mapping[str, str]) -> list[str]:
    """Register every deployment of prefect.yaml; their names as `flow/deployment`. Raises StackError with Prefect's own message."""
    if not (settings.root / "prefect.yaml").is_file():
        return []
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(
        command,
        cwd=settings.root,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    (settings.state / "deploy.log").write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise StackError(f"prefect.yaml could not be deployed (all of it in {settings.state / 'deploy.log'}):\n{tail}")
    return names(settings)


def names(settings: Settings) -> list[str]:
    """The deployments that the server knows, as `flow/deployment`. Raises StackError."""
    status, deployments = post(f"{settings.prefect_url}/api/deployments/filter", {})
    status_of_flows, flows = post(f"{settings.prefect_url}/api/flows/filter", {})
    if status != 200 or status_of_flows != 200:
        raise StackError(f"the Prefect server does not list its deployments: HTTP {status}, {status_of_flows}")
    flow = {item["id"]: item["name"] for item in flows}
    return sorted(f"{flow[item['flow_id']]}/{item['name']}" for item in deployments)


def write_prefect_toml(settings: Settings) -> bool:
    """Point the `prefect` command, run in the repository, at the stack; False if a prefect.toml of somebody else is there."""
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
