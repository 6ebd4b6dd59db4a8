"""`sweep ui`: the MLflow UI on the local store, loopback only, at the charts of a sweep."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import typer
from rich.console import Console

from cluster.python_path import environment_of
from experiments.config.errors import UserError
from experiments.config.paths import REPOSITORY, runs_root
from flows.runtime.command_environment import prepare_environment
from tasks.sweep.store import SweepStore, list_sweeps
from tasks.tracking import pages
from tasks.tracking.client import check_database, connect, no_answer, shown, tracking_uri


class NoUi(UserError):
    """There is nothing to show, or no port to show it on. The message says why, and what would be right."""


def serve(port: int, sweep_id: str | None, out: Console, *, open_: bool | None) -> int:
    """Serve until Ctrl-C. Returns an exit status where a server runs already; does not return where one takes this process's place.

    `sweep_id`: whose charts are shown; None is the newest sweep's. `open_`: in the browser; None: if there is a screen.
    Raises NoUi, DamagedFile, StoreError for a sweep that is not there.
    """
    prepare_environment()
    uri = tracking_uri()
    served = uri.startswith("http")
    if not served and not (runs_root() / "mlflow.db").exists():
        raise NoUi(f"there is nothing to show yet under {runs_root()}; `sweep run bridgetower` makes it")
    check_database()
    if served and (problem := no_answer(uri)):
        right = "start it (`make up` starts the stack's), or unset the variable: then `sweep ui` starts one on the store in the runs folder"
        raise NoUi(f"MLFLOW_TRACKING_URI: {shown(uri)} does not answer ({problem}); {right}")
    base = shown(uri) if served else f"http://127.0.0.1:{port}"
    page = _charts(base, sweep_id)  # first: an unknown sweep is on no port
    if not served and not _is_free(port):
        raise NoUi(f"port {port} is in use; choose another: sweep ui --port {port + 1}")
    if open_ is None:
        open_ = sys.stdout.isatty() and has_screen()
    out.print(f"MLflow UI: {base}{' runs already' if served else '  (Ctrl-C ends it)'}", highlight=False, soft_wrap=True)
    if page != base:
        out.print(f"charts:    {page}", highlight=False, soft_wrap=True)
    if served:
        if open_:
            typer.launch(page)
        return 0
    if open_:
        _open_once_up(f"{base}/health", page)
    # The UI alone: seven helper processes less
    environment = {**os.environ, **environment_of(REPOSITORY, os.environ), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    where = ["--backend-store-uri", uri, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", "server", *where]
    command += ["--artifacts-destination", str(runs_root() / "mlartifacts")]
    os.execve(sys.executable, command, environment)  # noqa: S606 - fixed arguments


def has_screen() -> bool:
    """Whether a browser could show something: not over ssh without a display."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open_once_up(health: str, page: str) -> None:
    """By a process of its own, since the server takes the place of this one. -P: beside the script lies a bisect.py."""
    script = str(Path(__file__).with_name("open_page.py"))
    subprocess.Popen([sys.executable, "-P", script, health, page], stdin=subprocess.DEVNULL)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _charts(base: str, sweep_id: str | None) -> str:
    """Address of the sweep's charts; of the UI where the newest sweep is not in MLflow yet. Raises NoUi for a named one that is not."""
    chosen = sweep_id or next(iter(list_sweeps()), None)
    if chosen is None:
        return base
    experiment = connect().get_experiment_by_name(SweepStore(chosen).load_plan().name)
    if experiment is None and sweep_id is not None:
        raise NoUi(f"{sweep_id} is not in MLflow yet; `sweep resume {sweep_id}` publishes it")
    return f"{base}/{pages.charts_link(experiment.experiment_id, chosen)}" if experiment else base
