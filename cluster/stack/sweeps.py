"""What the stack knows of sweeps: which of them its processes run, and which of their flow runs Prefect takes for running though they died.

A flow run that was killed stays Running in Prefect until somebody says otherwise, and takes the work pool's only slot until then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from cluster.lease import Holder, holder, is_held
from cluster.stack.components import post
from cluster.stack.settings import POOL, Settings
from cluster.trial_layout import FLOW_RUNS, HOLDER, STOP
from experiments.atomic_file import atomic_write

_OPEN = ("RUNNING", "PENDING", "CANCELLING")  # types of states of Prefect's that a flow run with a process has
_END_S = 60.0  # for a sweep's trials to end, and for its report
_REASON = "the stack's Prefect worker was stopped"
_MOST = 200  # flow runs that Prefect lists in one answer


def end_sweeps(settings: Settings, processes: Sequence[psutil.Process], say: Callable[[str], None], wait_s: float = _END_S) -> None:
    """Have the sweeps that these processes run end in order, as `sweep stop` does, and wait for the processes, at most `wait_s` seconds.

    The Prefect worker does not: it kills its flows at once when it is told to end.
    """
    running = _run_by(settings, processes)
    for sweep_id in running:
        say(f"sweep {sweep_id}: its trials are being stopped ...; go on with it: {_go_on(sweep_id)}")
        atomic_write(settings.runs / sweep_id / STOP, _REASON)
    _, left = psutil.wait_procs(list(running.values()), timeout=wait_s)
    for sweep_id, process in running.items():
        if process in left:
            say(f"sweep {sweep_id}: process {process.pid} has not ended within {wait_s:.0f} s, and is ended now")


def name_users(settings: Settings, servers: Collection[str], worker: Sequence[psutil.Process], say: Callable[[str], None]) -> None:
    """Say which sweeps of this machine go on without the servers (such as 127.0.0.1:4200) that are about to be stopped.

    `worker`: the processes of the stack's Prefect worker, whose sweeps end with it: see `end_sweeps`.
    """
    own = {process.pid for process in worker}
    for name, who in _held_here(settings).items():
        if who.pid not in own and who.servers.intersection(servers):
            kept = f"its results are kept here, and trials that it has on pool {POOL} wait and then end as infra"
            again = f"for what is missing, after `make up`: {_go_on(name)}"
            uses = f"process {who.pid}, which the stack did not start, uses its servers and goes on without them"
            say(f"sweep {name}: {uses}; {kept}; {again}")


def _run_by(settings: Settings, processes: Sequence[psutil.Process]) -> dict[str, psutil.Process]:
    """Sweep -> which of these processes of this machine works on it."""
    by_pid = {process.pid: process for process in processes}
    return {name: by_pid[who.pid] for name, who in _held_here(settings).items() if who.pid in by_pid}


def _held_here(settings: Settings) -> dict[str, Holder]:
    """Sweep -> the process of this machine that works on it."""
    found = {folder: holder(folder) for folder in sorted(_folders(settings, HOLDER))}
    return {folder.name: who for folder, who in found.items() if who and who.host == os.uname().nodename and is_held(folder)}


def _go_on(sweep_id: str) -> str:
    """The command that goes on with a sweep that has ended before its time."""
    return "the next `sweep nightly` of its date" if sweep_id.startswith("nightly-") else f"sweep resume {sweep_id}"


def settle_flow_runs(settings: Settings, say: Callable[[str], None], *, worker_died: bool) -> None:
    """Mark flow runs whose process is gone as Crashed, and say which. One of a sweep is gone where nobody holds the sweep's lease.

    `worker_died`: no process of the work pool is left, so its flow runs are gone too, also those that had no sweep yet. What Prefect does
    not tell or take stays as it is: the next resume of the sweep settles it.
    """
    asked = {"flow_runs": {"state": {"type": {"any_": list(_OPEN)}}}, "limit": _MOST}
    status, runs = post(f"{settings.prefect_url}/api/flow_runs/filter", asked)
    if status != 200 or not runs:
        return
    sweeps = _sweeps_of(settings, {run["id"] for run in runs})
    for run in runs:
        sweep, of_pool = sweeps.get(run["id"]), run.get("work_pool_name") == POOL
        if (of_pool and not worker_died) or (sweep is None and not of_pool) or (sweep is not None and is_held(sweep)):
            continue
        state = {"type": "CRASHED", "name": "Crashed", "message": "its process is gone"}
        status, _ = post(f"{settings.prefect_url}/api/flow_runs/{run['id']}/set_state", {"state": state, "force": True})
        if status in (200, 201):
            go_on = f"; go on with it: {_go_on(sweep.name)}" if sweep is not None else ""
            say(f"flow run {run['name']}: its process is gone; Prefect took it for running, and now has it as Crashed{go_on}")


def _sweeps_of(settings: Settings, runs: Collection[str]) -> dict[str, Path]:
    """Flow run -> the folder of the sweep that it worked on, of those that worked on one."""
    found = {}
    for folder in _folders(settings, FLOW_RUNS):
        with suppress(OSError):
            found.update({run: folder for run in (folder / FLOW_RUNS).read_text(errors="replace").split() if run in runs})
    return found


def _folders(settings: Settings, name: str) -> Iterator[Path]:
    """The folders of sweeps with such a file."""
    return (path.parent for path in settings.runs.glob(f"*/{name}"))
