"""Which process is what: finds the one that is to be killed, if it is there."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

import psutil

from cluster.launchers import processes
from cluster.stack import process
from cluster.stack.settings import Settings
from tasks.sweep.store import SweepStore

EMBEDDED = ("flow", "trial", "prefect")
WITH_SERVERS = (*EMBEDDED, "mlflow", "ray")
_RAYS_WATCHER = "sh"  # a shell beside each job, which does nothing but see when the job's supervisor is gone
SERVERS = ("prefect", "mlflow", "ray")  # components of the stack


def find(
    target: str, flow: psutil.Process, store: SweepStore | None, servers: Settings | None, whole: bool, rng: random.Random
) -> list[psutil.Process]:
    """The processes to kill at once; none while there is no such process.

    Of a trial one of its processes. `whole`: of a server all processes, else only the one that `make up` started, or Ray's GCS.
    """
    with contextlib.suppress(psutil.Error):
        if target == "flow":
            return [flow]
        if target == "trial":
            found = [member for key in _keys(store) for member in processes.of_trial(key) if member.name() != _RAYS_WATCHER]
            return [rng.choice(sorted(found, key=lambda member: member.pid))] if found else []
        if servers is None:
            return [child for child in flow.children() if "cluster.stack.prefect_server" in child.cmdline()]
        return _of_server(target, servers, whole)
    return []


def _keys(store: SweepStore | None) -> Sequence[str]:
    return [trial.key for trial in store.load_plan().trials] if store is not None and store.exists() else []


def _of_server(target: str, servers: Settings, whole: bool) -> list[psutil.Process]:
    record = process.read_record(servers.state, target)
    if record is None:
        return []
    members = process.members(record)
    if whole:
        return members
    return [member for member in members if (member.name() == "gcs_server" if target == "ray" else member.pid == record.pid)]
