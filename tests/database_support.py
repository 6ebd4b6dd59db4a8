"""Databases of MLflow and Prefect as the product makes them, made once for a whole test run: their tables take seconds to create."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from experiments.config.paths import runs_root

MLFLOW, PREFECT = "mlflow.db", ".prefect"


@contextmanager
def runs_in(folder: Path) -> Iterator[None]:
    """What this process and those it starts write goes to `folder`, which need not be there."""
    outer = os.environ["SWEEPBENCH_RUNS"]
    os.environ["SWEEPBENCH_RUNS"] = str(folder)
    try:
        yield
    finally:
        os.environ["SWEEPBENCH_RUNS"] = outer


def make(shared: Path, name: str) -> Path:
    """The new database `name`. `shared` is a folder of all pytest-xdist's workers: the first that comes makes it, the others wait."""
    folder, ready = shared / "databases", shared / f"databases{name}.ready"
    with FileLock(shared / f"databases{name}.lock"):
        if not ready.exists():
            with runs_in(folder):
                _MAKERS[name]()
            ready.touch()
    return folder / name


def _make_mlflow() -> None:
    from tasks.tracking.client import connect

    connect()


def _make_prefect() -> None:
    from flows.runtime.prefect_server import own_server

    with own_server() as server:
        server.wait()


_MAKERS: dict[str, Callable[[], None]] = {MLFLOW: _make_mlflow, PREFECT: _make_prefect}


def copy_to_runs(made: Path) -> None:
    """Give the runs folder a database of its own, which a server or client then does not create."""
    runs = runs_root()
    runs.mkdir(parents=True, exist_ok=True)
    if made.is_dir():
        shutil.copytree(made, runs / made.name, ignore=shutil.ignore_patterns("*.log"))
    else:
        shutil.copy(made, runs / made.name)
