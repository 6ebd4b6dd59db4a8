"""Start, follow and stop a trial, and find it again. tests/cluster/launchers/test_launchers.py runs both implementations.

A launch is plain data (launch.json in the trial's folder), so that another process can follow or stop the trial after this one has died.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field

from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalFollower
from cluster.journal.lines import Record
from cluster.pools.pool import Pool
from cluster.trial_layout import JOURNAL, LAUNCH
from experiments.atomic_file import atomic_write
from experiments.config.strict import Strict
from experiments.json_file import read_model
from experiments.trial import Trial, TrialKey, TrialResult


class Launch(Strict):
    """One started attempt of a trial."""

    launcher: Literal["local", "ray_job"]
    key: TrialKey
    attempt: int = Field(ge=1)
    id: str = Field(description="process id (local; empty while `starting`) or submission id (Ray job)")
    starting: bool = Field(
        False, description="written before the start, which its flow has not learnt the end of: whether it began is to be found out"
    )
    folder: str | None = Field(None, description="Ray job: folder of the trial's files as its process sees it, a path or a URI")
    born: float | None = Field(
        None, description="local: start time of the process, Unix s, since a later one may have the same id; null: it is over already"
    )
    replaces: TrialResult | None = Field(
        None,
        description="the disturbed measurement that this attempt is to replace, which stays unless it ends ok; null: none",
    )


class Status(Strict):
    """State of a launch. `exit_code` is None while it runs, and if the exit was not observed."""

    running: bool
    pending: bool = Field(False, description="accepted, and not started by Ray yet")
    overdue: str | None = Field(None, description="pending for longer than its pool allows: what it waits for, and how long it did")
    exit_code: int | None = None
    message: str | None = None


class LaunchError(Exception):
    """A trial could not be started or queried. This concerns the pool, not the trial."""


class LaunchRefused(LaunchError):
    """The pool answered and refuses trials from here. Waiting does not help."""


class Launcher(Protocol):
    """Runs trials on one pool. Any process that can reach the pool may call any method."""

    def free_number(self, trial: Trial, trial_dir: Path, attempt: int) -> int:
        """The first number from `attempt` on that is free on the pool, for a trial of which no launch.json tells: the pool may keep what is
        left of attempts that are over. Raises LaunchError."""

    def starting(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        """The launch of an attempt that is about to be started, as far as it is known by then: enough for `find_started` and `stop`."""

    def end_earlier(self, trial: Trial) -> None:
        """End what earlier attempts of the trial left where `find_started` could take it for the next one. Comes before launch.json tells
        of the next one."""

    def start(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        """Start one attempt and return once the pool has accepted it. Raises LaunchError."""

    def find_started(self, launch: Launch) -> Launch | None:
        """The whole launch of one that is `starting`, whose flow died meanwhile; None if nothing of it was started, or is left.

        Raises LaunchError if the pool, or its storage, does not answer.
        """

    def status(self, launch: Launch) -> Status:
        """State of the launch. Raises LaunchError if the pool does not answer; the trial may still be running."""

    def fetch(self, launch: Launch, trial_dir: Path, *, last: bool = False) -> None:
        """Copy the trial's files into `trial_dir`, unless the trial writes there itself. `last`: the trial is over, so copy everything.

        Raises LaunchError if the pool's storage does not answer, and JournalError for a journal that was changed after it was written.
        """

    def keep(self, launch: Launch, trial_dir: Path) -> None:
        """Copy the flow's files about the trial (result.json, steps.parquet) beside the trial's own. Raises LaunchError."""

    def stop(self, launch: Launch, grace_s: float = 5.0) -> None:
        """Ask the trial to end; after `grace_s` seconds kill it and all its processes. Does nothing to a trial that is over.

        Raises LaunchError if the pool does not answer; the trial may still be running.
        """

    def stop_lost(self, trial: Trial, trial_dir: Path, attempt: int) -> None:
        """As `stop`, of an attempt whose launch.json is lost. `attempt`: its number, as far as that is known. Raises LaunchError."""

    def find_lost(self, trial: Trial, trial_dir: Path, begun: Record) -> Launch:
        """The launch of an attempt that has begun its journal, and whose flow died before launch.json had all of it.

        `begun`: the attempt's first record in the journal, which may run still or be over.
        """

    def log(self, launch: Launch, trial_dir: Path) -> str:
        """Output of the trial's processes so far."""

    def close(self) -> None:
        """Release what was kept for further trials; another `start` makes it anew. Leaves trials that run alone."""


def for_pool(pool: Pool) -> Launcher:
    """The launcher that reaches `pool`."""
    if pool.embedded:
        from cluster.launchers.local import LocalLauncher

        return LocalLauncher(pool)
    from cluster.launchers.ray_job import RayJobLauncher

    return RayJobLauncher(pool)


def save(launch: Launch, trial_dir: Path) -> None:
    """Write launch.json, right before a start and right after it: whenever a flow dies, this file leads to what it started."""
    atomic_write(trial_dir / LAUNCH, launch.model_dump_json(indent=1))


def load(trial_dir: Path) -> Launch | None:
    """The launch in launch.json; None if there is none. Raises DamagedFile."""
    return read_model(trial_dir / LAUNCH, Launch, "`sweep resume` ends what it started and runs the trial again")


def find(trial: Trial, trial_dir: Path, launcher: Callable[[], Launcher], records: Sequence[Record] | None = None) -> Launch | None:
    """The trial's last launch; None if it was never started. Raises DamagedFile and JournalError, and LaunchError if its pool is asked and
    does not answer.

    A flow that dies during a start leaves a launch.json that is `starting`. The attempt's journal, else its pool, then tells whether it
    began, and the whole launch is saved. Where it did not begin, launch.json stays: the next attempt takes its number.
    `launcher`: gives that of the trial's pool, where it is needed. `records`: the journal's, if the caller has read it; else it is read.
    """
    saved = load(trial_dir)
    if records is None:
        try:
            records = JournalFollower(trial_dir / JOURNAL, trial.key).poll()
        except JournalError:
            if saved is None:
                raise
            records = []
    begun = next((record for record in reversed(records) if record["kind"] == "attempt"), None)
    known = 0 if saved is None else saved.attempt
    found: Launch | None
    if begun is not None and (begun["attempt"] > known or (saved is not None and saved.starting and begun["attempt"] == known)):
        found = launcher().find_lost(trial, trial_dir, begun)
    elif saved is not None and saved.starting:
        found = launcher().find_started(saved)
    else:
        return saved
    if found is None:
        return None
    if saved is not None and found.attempt == saved.attempt:
        found = found.model_copy(update={"replaces": saved.replaces})
    save(found, trial_dir)
    return found
