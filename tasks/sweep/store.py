"""Sweeps on disk, and the lease that lets one process at a time work on a sweep.

runs/<sweep_id>/ holds plan.json, trials/<key>/..., results.parquet, the report and its figures. The lease is a file lock, which the
operating system releases when the process that holds it dies.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import Field

from cluster.lease import holder, is_held, name_holder
from cluster.trial_layout import FLOW_RUNS, HOLDER, IMPORTED, JOURNAL, LEASE, PLAN, RESULT, STATUS, STOP, TRIAL, TRIALS
from experiments.atomic_file import atomic_write, remove_temporaries
from experiments.config.errors import DamagedFile, UserError
from experiments.config.paths import runs_root
from experiments.config.strict import Strict
from experiments.json_file import model_in, read_file, read_model, sealed_text, validated
from experiments.spec.schema import MOST_ROUNDS, Suite
from experiments.stats.interim_looks import Look
from experiments.trial import Outcome, Trial, TrialKey, TrialResult
from tasks.sweep.ab_settings import AbSettings
from tasks.sweep.early_plans import upgraded
from tasks.sweep.race_settings import RaceSettings
from tasks.sweep.result_file import read_result
from tasks.sweep.seal import RESTORE, SEALED_SINCE, content_of, sealed_content

OF_CAMPAIGN = "sweep.campaign"  # label of a campaign's sweeps: its name
_log = logging.getLogger(__name__)
_ASKED_S = 1.0  # who only asks whether somebody holds a lease has it for a moment, which is longer on a busy machine
_SWEEP_ID = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}-\d{8}-\d{6}-[0-9a-f]{4}$")


class StoreError(UserError):
    """A sweep does not exist, cannot be read, or is in use. The message says which and what to do."""


class SweepBusy(StoreError):
    """Another process works on the sweep."""


class Request(Strict):
    """The user's request: the parameters of `sweep run` and of the flow."""

    suite: str
    profile: str = "auto"
    pools: list[str] = Field(default_factory=list)
    set: dict[str, Any] = Field(default_factory=dict)
    only: dict[str, list[Any]] = Field(default_factory=dict)
    repeats: int | None = None
    budget_s: float | None = Field(None, gt=0, description="rounds go on until trials have run for so long, s; null: as the suite says")
    until_decided: bool | None = Field(None, description="of cells whose comparison is decided no more rounds; null: as the suite says")
    pool_wait_s: float | None = Field(None, ge=0, description="how long trials wait for a pool that is down; null: as the pool says")


class AaSettings(Strict):
    """What makes a sweep an A/A sweep: its two cells are arms, the same cell twice, and run in turns, pair by pair."""

    pairs: int = Field(ge=1, le=1000, description="the most pairs that are run")
    minutes: float | None = Field(None, gt=0, description="no pair starts once trials have run for so long; null: all pairs run")


class Status(Strict):
    """status.json: how the last flow over a sweep ended."""

    status: int = Field(description="its exit status")
    message: str = Field(description="a line for people")
    at: float = Field(description="Unix time, s")


class DecideSettings(Strict):
    """What makes a sweep one that goes on round by round: see tasks/rounds/decide_plan.py."""

    budget_s: float = Field(gt=0, description="no round starts that would not be over once trials have run for so long, s")
    until_decided: bool = Field(False, description="cells whose comparison is decided take part in no more rounds; false: all cells do")
    least: int = Field(3, ge=2, le=1000, description="rounds of all cells before the first look")
    most: int = Field(MOST_ROUNDS, ge=2, le=1000, description="the most rounds that are run")
    resumed: bool | None = Field(None, description="true: `sweep resume --budget` gave it more time; null: no, or before that was noted")
    looks: list[Look] = Field(
        default_factory=list, description="at which comparisons were judged, and what of the chance of error each may use"
    )
    expected_rounds: int | None = Field(None, description="how many rounds there was time for when the last one was planned; null: one is")
    undecided: list[str] = Field(default_factory=list, description="names of the cells for whose sake the last round was planned")


class Superseded(Strict):
    """A trial that now has another key. `key`: the old one; `by`: the new one; `why`: what changed."""

    key: TrialKey
    by: TrialKey
    why: str


class Retried(Strict):
    """A trial that was run again though it had ended: see tasks/sweep/crashed_again.py."""

    key: TrialKey
    attempt: int = Field(ge=1, description="the one that crashed")
    reason: str
    at: float = Field(description="when it was asked for, Unix time, s")


class Plan(Strict):
    """plan.json: all trials of a sweep, fixed before the first one starts."""

    schema_version: int = Field(SEALED_SINCE, ge=1, le=SEALED_SINCE, description="higher: a later version of sweepbench wrote it")
    sweep_id: str
    suite: Suite = Field(description="the suite as it was read, profile and overrides applied")
    request: Request
    profile: str = Field(description="the profile that was used; auto is resolved")
    command: str = Field(description="how to run this sweep again")
    created_at: float = Field(description="Unix time, s")
    git: dict[str, Any] = Field(default_factory=dict)
    tree: str | None = Field(None, description="hash of the code that was to run (cluster/source_tree.py); null: of an early plan")
    trees: dict[str, str] = Field(default_factory=dict, description="commit -> that hash, of trials that run another commit")
    trials: list[Trial]
    superseded: list[Superseded] = Field(default_factory=list)
    cut: list[Trial] = Field(default_factory=list, description="planned, and not run as time was up: see tasks/sweep/cut.py")
    retried: list[Retried] = Field(default_factory=list, description="crashed, and run again as `sweep resume --crashed` asked")
    labels: dict[str, str] = Field(default_factory=dict, description="tags of the sweep's MLflow run")
    aa: AaSettings | None = Field(None, description="of an A/A sweep: see tasks/sweep/aa_plan.py; null for every other")
    decide: DecideSettings | None = Field(
        None, description="of a sweep with a budget of time; null: all its trials were planned at the start"
    )
    race: RaceSettings | None = Field(None, description="of a race: see tasks/rounds/race_plan.py; null for every other")
    ab: AbSettings | None = Field(None, description="of an A/B sweep: see tasks/rounds/ab_plan.py; null for every other")

    @property
    def name(self) -> str:
        """The name of the suite, or of the night, which runs cells of several suites."""
        return self.suite.suite

    @property
    def is_night(self) -> bool:
        """Whether it is a night's sweep."""
        return self.name.startswith("nightly-")

    @property
    def campaign(self) -> str | None:
        """The campaign that it is a sweep of."""
        return self.labels.get(OF_CAMPAIGN)

    @property
    def rounds_allowed(self) -> int | None:
        """How many more rounds the campaign's file gives a campaign's sweep: a resume adds no other. None for what is of no campaign."""
        return None if self.campaign is None else max(0, self.decide.most - self.last_round) if self.decide else 0

    @property
    def has_all_rounds(self) -> bool:
        """Whether it is a campaign's sweep with as many rounds as the campaign's file gives it."""
        return self.rounds_allowed == 0

    @property
    def last_round(self) -> int:
        """The number of the last round of repeats, from 1; 0 without trials."""
        return max((trial.repeat for trial in self.trials), default=0)


def read_plan(path: Path) -> Plan | None:
    """The plan in a plan.json; None where there is none. Raises DamagedFile, also where its seal does not hold."""
    return read_file(path, lambda data: _plan_in(data, path.parent.name.startswith("nightly-")), RESTORE)


@lru_cache(maxsize=8)  # by what is in the file: a command reads the plan of thousands of trials several times
def _plan_in(data: bytes, night: bool) -> Plan:
    content = content_of(data)
    today = upgraded(content, night=night)
    return model_in(data, content, Plan) if today == content else validated(today, Plan)


def new_sweep_id(suite: str) -> str:
    """A new id such as bridgetower-20261120-231502-4f1a: suite, UTC time and 4 random hex digits."""
    return f"{suite}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def started_order(sweep_id: str) -> str:
    """What sorts ids of sweeps by when they were started: date, time and the digits that tell apart those of one second."""
    return sweep_id[-20:]


def is_sweep_id(name: str) -> bool:
    """Whether a folder of this name may be a sweep's."""
    return _SWEEP_ID.match(name) is not None


class SweepStore:
    """The folder of one sweep. The constructor raises StoreError for an invalid id."""

    def __init__(self, sweep_id: str, root: Path | None = None) -> None:
        if not is_sweep_id(sweep_id):
            raise StoreError(f"{sweep_id!r} is not a sweep id; `sweep list` shows them, and `last` is the newest")
        self.sweep_id = sweep_id
        self.dir = (root or runs_root()) / sweep_id
        self._trials = self.dir / TRIALS

    # --- the plan

    def exists(self) -> bool:
        """True if the sweep has a plan, be it one that cannot be read."""
        return os.path.lexists(self.dir / PLAN)

    def load_plan(self) -> Plan:
        """The sweep's plan. Raises StoreError if there is no sweep, and DamagedFile if its plan is missing or cannot be read."""
        if (plan := read_plan(self.dir / PLAN)) is not None:
            return plan
        if (self.dir / TRIALS).is_dir():
            raise DamagedFile(self.dir / PLAN, "", "is missing, though the sweep has trials", RESTORE)
        if (self.dir / IMPORTED).exists():
            raise StoreError(
                f"{self.sweep_id} was imported: others measured it, so it has no trials of ours and is compared with none; "
                f"`sweep show {self.sweep_id}` and `sweep report {self.sweep_id}` show it"
            )
        hint = "`sweep list` shows them, and `last` is the newest"
        raise StoreError(f"there is no sweep {self.sweep_id} under {self.dir.parent}; {hint}")

    def save_plan(self, plan: Plan) -> None:
        """Write plan.json with its seal, then trial.json of each trial that has none, each atomically: killed in between, a resume goes on.

        Raises OSError, and DamagedFile where the plan.json that is there was changed by hand: a new seal would hide that.
        """
        self.dir.mkdir(parents=True, exist_ok=True)
        sealed_content(self.dir / PLAN)  # raises
        sealed = plan.schema_version >= SEALED_SINCE
        atomic_write(self.dir / PLAN, sealed_text(plan) if sealed else plan.model_dump_json(indent=1))
        self.tell_trials(plan)

    def tell_trials(self, plan: Plan) -> None:
        """Write trial.json of each trial that has none, atomically. Raises OSError."""
        for trial in plan.trials:
            folder = self.trial_dir(trial.key)
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / TRIAL).exists():
                remove_temporaries(folder / TRIAL)  # of a flow that was killed
                atomic_write(folder / TRIAL, sealed_text(trial))

    def untold(self, plan: Plan) -> list[str]:
        """Each trial.json that is missing though its trial has begun, and what writes it again.

        Of the others none is lost: a published sweep has its trials in results.parquet, and `save_plan` may still be writing.
        """
        again = f"is missing; `sweep resume {self.sweep_id}` writes it again, and measures nothing anew for that"
        folders = [self.trial_dir(trial.key) for trial in plan.trials]
        begun = [folder for folder in folders if any(os.path.lexists(folder / name) for name in (JOURNAL, RESULT))]
        return [f"{folder / TRIAL} {again}" for folder in begun if not os.path.lexists(folder / TRIAL)]

    def trial_dir(self, key: str) -> Path:
        """The folder of the trial with this key."""
        return self._trials / key

    def result(self, key: str) -> TrialResult | None:
        """The trial's result; None while there is none. Raises DamagedFile."""
        return read_result(self.trial_dir(key), key)

    def save_result(self, result: TrialResult) -> None:
        """Write a trial's result.json atomically. Raises OSError."""
        atomic_write(self.trial_dir(result.key) / RESULT, sealed_text(result))

    # --- one worker at a time

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the sweep's lease inside the block. Raises SweepBusy, naming the holder, if another process holds it."""
        self.dir.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.dir / LEASE)
        try:
            lock.acquire(timeout=_ASKED_S, poll_interval=_ASKED_S / 20)
        except Timeout:
            who = f"process {by.pid} on {by.host}" if (by := holder(self.dir)) else "another process"
            raise SweepBusy(f"sweep {self.sweep_id} is being worked on by {who}; `sweep stop {self.sweep_id}` ends it") from None
        except OSError as error:
            raise StoreError(f"{self.dir / LEASE} cannot be locked ({error.strerror}); nobody may write there, or it is no file") from error
        try:
            name_holder(self.dir)
            self.stop_file.unlink(missing_ok=True)
            self._remove_temporaries()
            yield
        finally:
            (self.dir / HOLDER).unlink(missing_ok=True)
            lock.release()

    def _remove_temporaries(self) -> None:
        """Remove what a killed flow had written of results of trials that have ended: no process of such a trial writes one any more."""
        for path in sorted({part.parent / RESULT for part in self._trials.glob(f"*/.{RESULT}.*.tmp")}):
            with suppress(DamagedFile):
                if (result := read_result(path.parent)) is not None and result.outcome.final:
                    remove_temporaries(path)

    def is_held(self) -> bool:
        """True while some process works on the sweep, and where that cannot be told: see cluster/lease.py."""
        return is_held(self.dir)

    @property
    def stop_file(self) -> Path:
        """The file that asks the sweep to stop; its text is the reason."""
        return self.dir / STOP

    def request_stop(self, reason: str) -> None:
        """Ask whoever works on the sweep to stop its trials."""
        atomic_write(self.stop_file, reason)

    def stop_reason(self) -> str | None:
        """Why the sweep was asked to stop; None if it was not."""
        try:
            return self.stop_file.read_text(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self.stop_file} is there and cannot be read ({error.strerror})"

    # --- the Prefect flow runs that worked on the sweep, so that dead ones can be recognised

    def add_flow_run(self, flow_run_id: str) -> None:
        """Add the id of a Prefect flow run that works on the sweep."""
        with open(self.dir / FLOW_RUNS, "a") as file:
            file.write(flow_run_id + "\n")

    def flow_runs(self) -> list[str]:
        """Ids of all Prefect flow runs that have worked on the sweep, oldest first."""
        try:
            return (self.dir / FLOW_RUNS).read_text(errors="replace").split()
        except OSError:
            return []

    # --- progress

    def save_status(self, status: int, message: str) -> None:
        """Record how the last flow of this sweep ended: its exit status and a line for the user."""
        atomic_write(self.dir / STATUS, Status(status=status, message=message, at=time.time()).model_dump_json(indent=1))

    def clear_status(self) -> None:
        """Forget how an earlier flow ended: one works on the sweep again, and may be killed."""
        (self.dir / STATUS).unlink(missing_ok=True)

    def load_status(self) -> Status | None:
        """What `save_status` wrote; None if no flow has ended. Raises DamagedFile."""
        return read_model(self.dir / STATUS, Status, f"remove it; `sweep resume {self.sweep_id}` writes it again")

    def states(self, plan: Plan) -> dict[str, Outcome | None]:
        """Trial key -> outcome; None for a trial without a result that can be read."""
        return {trial.key: result.outcome if (result := readable_result(self, trial.key)) else None for trial in plan.trials}


def exit_status(states: dict[str, Outcome | None]) -> int:
    """Exit status of a sweep. 0: all outcomes are expected (Outcome.expected); 1: the sweep is incomplete; 2: some trials failed."""
    if any(outcome in (None, Outcome.CANCELLED) for outcome in states.values()):
        return 1
    return 0 if all(outcome is not None and outcome.expected for outcome in states.values()) else 2


def list_sweeps(root: Path | None = None) -> list[str]:
    """Sweep ids, newest first."""
    root = root or runs_root()
    if not root.is_dir():
        return []
    sweep_ids = [path.name for path in root.iterdir() if is_sweep_id(path.name) and _begun(path)]
    return sorted(sweep_ids, key=started_order, reverse=True)


def _begun(folder: Path) -> bool:
    """Whether a folder is a sweep's: with a plan, be it one that cannot be read, or with trials that have lost theirs."""
    return os.path.lexists(folder / PLAN) or (folder / TRIALS).is_dir()


# --- what past sweeps say, whatever state they are in


def readable_plans(root: Path | None = None) -> Iterator[tuple[SweepStore, Plan]]:
    """Every sweep whose plan can be read, newest first. A damaged one is logged, once a process, and left out."""
    for sweep_id in list_sweeps(root):
        store = SweepStore(sweep_id, root)
        try:
            yield store, store.load_plan()
        except UserError as error:
            warn_once(f"left out: {error}")


def readable_result(store: SweepStore, key: str) -> TrialResult | None:
    """A trial's result; None without one that can be read. A damaged one is logged, once a process."""
    try:
        return store.result(key)
    except DamagedFile as error:
        warn_once(f"left out: {error}")
        return None


@lru_cache(maxsize=1024)
def warn_once(text: str) -> None:
    """Log a warning, the same one once a process."""
    _log.warning("%s", text)
