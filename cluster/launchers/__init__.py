"""Start, follow, stop and find again one trial. tests/cluster/launchers/test_launchers.py holds both implementations to one behaviour.

A launch is plain data (launch.json in the trial's folder), so that another process can follow or stop it after this one died.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field

from cluster.pools.pool import Pool
from cluster.trial_layout import LAUNCH
from experiments.atomic_file import atomic_write
from experiments.config.strict import Strict
from experiments.trial import Trial


class Launch(Strict):
    """One started attempt of a trial."""

    launcher: Literal["local", "ray_job"]
    key: str
    attempt: int = Field(ge=1)
    id: str = Field(description="process id (local) or submission id (Ray job)")
    folder: str | None = Field(None, description="Ray job: where the trial's process finds and leaves its files, a path or a URI")
    born: float | None = Field(None, description="start time of the process, Unix s: tells a process id used again from the process itself")


class Status(Strict):
    """Where a launch stands. `exit_code` is None while it runs, and where nobody is left who saw the exit."""

    running: bool
    pending: bool = Field(False, description="accepted, and not started by Ray yet")
    exit_code: int | None = None
    message: str | None = None


class LaunchError(Exception):
    """A trial could not be started or asked about: the pool's state, not the trial's."""


class LaunchRefused(LaunchError):
    """The pool answered and does not take trials from here: waiting does not help."""


class Launcher(Protocol):
    """All methods may be called from any process that can reach the pool."""

    def start(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        """Start one attempt; returns once it is accepted. Raises LaunchError."""

    def status(self, launch: Launch) -> Status:
        """Raises LaunchError if the pool does not answer (the trial may well be running)."""

    def fetch(self, launch: Launch, trial_dir: Path, *, last: bool = False) -> None:
        """Bring what the trial has written into `trial_dir`, where it does not write there itself; `last`: it is over, all must come.

        Raises LaunchError while the pool's storage does not answer, JournalError for a journal that is not as written.
        """

    def keep(self, launch: Launch, trial_dir: Path) -> None:
        """Put what the flow made of the trial (result.json, steps.parquet) beside the trial's own files. Raises LaunchError."""

    def stop(self, launch: Launch, grace_s: float = 5.0) -> None:
        """Ask the trial to end, and end it and all its processes after `grace_s`. Harmless on one that is over.

        Raises LaunchError if the pool does not answer: the trial may well be running.
        """

    def log(self, launch: Launch, trial_dir: Path) -> str:
        """What the trial's processes printed so far."""


def for_pool(pool: Pool) -> Launcher:
    """The launcher that reaches `pool`."""
    if pool.embedded:
        from cluster.launchers.local import LocalLauncher

        return LocalLauncher(pool)
    from cluster.launchers.ray_job import RayJobLauncher

    return RayJobLauncher(pool)


def save(launch: Launch, trial_dir: Path) -> None:
    """Write launch.json. Done right after the start: what is in it is all that finds the trial again."""
    atomic_write(trial_dir / LAUNCH, launch.model_dump_json(indent=1))


def load(trial_dir: Path) -> Launch | None:
    """The trial's last launch, None if it was never started."""
    path = trial_dir / LAUNCH
    return Launch.model_validate_json(path.read_text()) if path.exists() else None
