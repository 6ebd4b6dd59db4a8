"""Where nights live on disk: runs/nightly/<name>/<date>/night.json, and changes.jsonl beside the dates.

A night is claimed by its date: the first process to claim it gives it a sweep, and every later one works on that sweep or finds it done.
These files are the record; MLflow and Prefect only show it.

Stored words that the code calls otherwise: the role `twin` is the A/A control, `judgements` are the verdicts, and `probes` are the verdicts
on the two controls. They stay, so that old nights can be read and cells keep their history in MLflow (tag `night.role`).
"""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

from filelock import FileLock
from pydantic import Field

from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.config.paths import runs_root
from experiments.config.strict import Strict
from experiments.json_file import parse_model, read_file, read_model, sealed_text
from experiments.regression.history_segments import Change
from experiments.stats.verdict import Verdict
from tasks.nightly.commit_records import FoundCommit, Pairs
from tasks.sweep.store import StoreError, warn_once

Role = Literal["history", "canary", "twin", "injected"]
Where = Literal["code", "node", "code and node", "code or node", "environment"]
AA_CONTROL: Role = "twin"  # the same cell once more: nothing may differ
SLOWED_CONTROL: Role = "injected"  # the same cell, slowed on purpose: this must be found
CHANGED = (Verdict.SLOWER, Verdict.FASTER)
CONTROLS: tuple[Role, ...] = (AA_CONTROL, SLOWED_CONTROL)
PAIRED = "paired"  # label of trials of a given commit, which are of no cell's history
_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")


class NightCell(Strict):
    """One cell of a night. `cell` is its identity over the nights; both controls have the identity of the cell that they copy."""

    cell: str
    name: str = Field(description="for people: `bridgetower: cpu · tiny · fp32 · MP-0`")
    suite: str
    pool: str
    role: Role
    value: float
    metrics: list[str]
    minimum_effect: dict[str, float]
    expected_s: float | None = Field(None, description="of one trial, from history; null without one")


class Dropped(Strict):
    """A cell that was left out, and why."""

    cell: str
    name: str
    why: str


class CellVerdict(Strict):
    """The verdict on one metric of one cell tonight.

    `ratio` is tonight over the baseline, `low` to `high` its 95 % interval; above 1 is better. All are null where nothing can be compared.
    """

    cell: str
    name: str
    role: Role
    metric: str
    verdict: Verdict
    word: str = Field(description="the verdict in the metric's own words: slower, more, higher, ...")
    why: str | None = Field(None, description="why undecided, or what a reader must know besides")
    where: Where | None = None
    value: float | None = Field(None, description="tonight, in the metric's unit")
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    q_value: float | None = None
    share: float | None = Field(None, description="how much of the canary's change was subtracted: 0 none, 1 all")
    detectable: float | None = Field(None, description="smallest worsening that a night finds with 95 % probability; 0.04 is 4 %")
    minimum: float
    repeats: int
    baseline: list[str] = Field(default_factory=list, description="dates, oldest first")
    needs: int | None = Field(
        None, description="so many nights its baseline needs, and has fewer; null: it has enough, or it is an early record"
    )
    uncounted: int = Field(0, ge=0, description="earlier nights that have no part in any baseline: other work disturbed every trial")
    disturbed: str | None = Field(None, description="what disturbed the first of tonight's trials, where each was disturbed")
    alarm_since: str | None = None
    causes: list[str] = Field(default_factory=list, description="what of the environment changed against the baseline")
    raw: float | None = Field(None, description="as `ratio`, with nothing of the canary's change subtracted")
    within: float | None = Field(None, description="standard deviation of one repeat's logarithm, by the baseline's nights and tonight")
    looked: Verdict | None = Field(None, description="what the screen saw, for pairs to decide: slower, faster, or undecided between both")
    crept: bool = Field(False, description="suspected of a slow drift: its pairs are against the first commit of its segment")
    pairs: Pairs | None = Field(None, description="tonight's commit against the last good one; then the verdict rests on it")
    not_paired: str | None = Field(None, description="why a cell that looked changed has no pairs; null: it did not, or it has")


class NodeState(Strict):
    """The verdict on a node, by its canary. `ratio` is tonight over the canary's baseline, above 1 is faster."""

    pool: str
    host: str
    verdict: Verdict
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    detectable: float | None = None
    note: str | None = None


class NightCode(Strict):
    """The code that a night ran. All null: it is not known."""

    commit: str | None = Field(None, description="40 hex digits")
    dirty: bool | None = Field(None, description="whether the code differed from the commit")
    branch: str | None = Field(None, description="see `git_branch` (cluster/git_state.py)")


class PoolEnvironment(Strict):
    """What a night's trials ran on in one pool."""

    pool: str
    facts: dict[str, str] = Field(description="name -> value; all values where trials differed: `node-1 / node-2`")


class Night(Strict):
    """night.json: a night's cells, and the verdicts on them."""

    schema_version: int = 1
    name: str
    date: str
    sweep_id: str
    opened_at: float = Field(description="Unix time, s")
    closed_at: float | None = Field(None, description="Unix time, s, at which its verdicts were final")
    told_at: float | None = Field(
        default_factory=lambda fields: fields.get("closed_at"),
        description="Unix time, s, at which the closed night was told, and so over; an early record has none, and was over once closed",
    )
    budget_s: float
    cells: list[NightCell] = Field(default_factory=list)
    dropped: list[Dropped] = Field(default_factory=list)
    missed: list[Dropped] = Field(default_factory=list, description="planned, but without a result when the night was closed")
    judgements: list[CellVerdict] = Field(default_factory=list)
    nodes: list[NodeState] = Field(default_factory=list)
    probes: dict[str, Verdict] = Field(default_factory=dict, description="role -> verdict on the A/A control and the injected slow-down")
    bisections: list[FoundCommit] = Field(default_factory=list, description="what the night found of the commits behind what got worse")
    notified: list[str] = Field(default_factory=list, description="notification blocks that have taken the message")
    remarks: list[str] = Field(default_factory=list)
    code: NightCode | None = Field(None, description="null: of an early record")
    environments: list[PoolEnvironment] = Field(default_factory=list, description="of the pools; empty: of an early record, or not closed")

    @property
    def closed(self) -> bool:
        return self.closed_at is not None

    @property
    def over(self) -> bool:
        """Whether nothing is left to do of it."""
        return self.told_at is not None

    @property
    def cell_verdicts(self) -> list[CellVerdict]:
        """The verdicts on the cells themselves, without the controls."""
        return [item for item in self.judgements if item.role == "history"]

    def worse(self) -> list[CellVerdict]:
        """The cells' metrics that got worse."""
        return [item for item in self.cell_verdicts if item.verdict is Verdict.SLOWER]


def today() -> str:
    """Today's date in UTC, which has no daylight saving."""
    return datetime.now(UTC).date().isoformat()


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def check_date(text: str) -> str:
    """The text itself, a date such as 2026-11-21. Raises StoreError for any other text."""
    if _is_date(text):
        return text
    raise StoreError(f"{text!r} is not a date; write it as {today()}")


class NightStore:
    """The nights of one definition. Raises StoreError for a name that no definition can have."""

    def __init__(self, name: str, root: Path | None = None) -> None:
        if not _NAME.match(name):
            raise StoreError(f"{name!r} is not the name of a nightly definition")
        self.name = name
        self.dir = (root or runs_root()) / "nightly" / name

    def folder(self, night: str) -> Path:
        return self.dir / check_date(night)

    def dates(self) -> list[str]:
        """Every night that was claimed, oldest first."""
        if not self.dir.is_dir():
            return []
        return sorted(path.name for path in self.dir.iterdir() if _is_date(path.name) and os.path.lexists(path / "night.json"))

    def load(self, night: str) -> Night:
        """Raises StoreError if there is none, and DamagedFile if it cannot be read."""
        path = self.folder(night) / "night.json"
        found = read_model(path, Night, f"move {path.parent} away to run that night anew")
        if found is None:
            raise StoreError(f"there is no night {night} of {self.name}; `sweep nights` shows them")
        return found

    def all(self) -> list[Night]:
        """Every night that can be read, oldest first. A damaged one is logged, once a process, and left out."""
        nights = []
        for known in self.dates():
            try:
                nights.append(self.load(known))
            except DamagedFile as error:
                warn_once(f"left out: {error}")
        return nights

    def save(self, night: Night) -> None:
        """Write night.json, whole or not at all."""
        atomic_write(self.folder(night.date) / "night.json", sealed_text(night))

    def check_opens(self, night: str) -> None:
        """Raise StoreError where no night of this date may begin: it is to come, or a later one is over. One that has begun may go on.

        A night measures today's code, which later verdicts would have to have been compared with.
        """
        if os.path.lexists(self.folder(night) / "night.json"):
            return
        if night > today():
            raise StoreError(f"--date {night} is to come: today is {today()} (UTC); leave it out for today's night")
        later = [other.date for other in self.all() if other.date > night and (other.closed or other.judgements)]
        if later:
            raise StoreError(
                f"--date {night} is before the night of {later[-1]}, which is over: the verdicts since rest on the nights that there were; "
                f"give a later date, or none for today's night"
            )

    def claim(self, night: str, budget_s: float) -> tuple[Night, bool]:
        """The night, and whether this call opened it. All who claim one date at once get the same sweep. Raises StoreError."""
        folder = self.folder(night)
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".claim"):
            if os.path.lexists(folder / "night.json"):
                return self.load(night), False
            stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
            sweep_id = f"nightly-{self.name}"[:64].rstrip("-_") + f"-{stamp}-{secrets.token_hex(2)}"
            opened = Night(name=self.name, date=night, sweep_id=sweep_id, opened_at=time.time(), budget_s=budget_s)
            self.save(opened)
            return opened, True

    # --- accepted changes

    @property
    def _changes(self) -> Path:
        return self.dir / "changes.jsonl"

    def changes(self) -> list[Change]:
        """Every accepted change, oldest first. Raises DamagedFile that names the line which cannot be read: baselines rest on them all."""
        hint = "put it back, or remove the line and accept the change again"
        lines = read_file(self._changes, lambda data: data.decode().split("\n"), hint) or []
        where = [(line, Path(f"{self._changes}, line {number}")) for number, line in enumerate(lines, 1) if line]
        return [parse_model(line.encode(), Change, place, hint) for line, place in where]

    def accept(self, change: Change) -> bool:
        """Record a change; False if it was recorded already. One that is accepted again on a later night settles the nights up to it."""
        self.dir.mkdir(parents=True, exist_ok=True)
        with FileLock(self.dir / ".changes.lock"):
            known = self.changes()
            same = next((old for old in known if (old.cell, old.metric, old.since) == (change.cell, change.metric, change.since)), None)
            if same is not None and change.accepted_on <= same.accepted_on:
                return False
            entries = [change if old is same else old for old in known] if same is not None else [*known, change]
            atomic_write(self._changes, "".join(entry.model_dump_json() + "\n" for entry in entries))
            return True


def person() -> str:
    """The user's name, for the record; `unknown` where the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def night_names(root: Path | None = None) -> list[str]:
    """Definitions that have nights here."""
    folder = (root or runs_root()) / "nightly"
    names = sorted(path.name for path in folder.iterdir() if _NAME.match(path.name)) if folder.is_dir() else []
    return [name for name in names if NightStore(name, root).dates()]


def verdicts_of(nights: Sequence[Night], cell: str, metric: str) -> dict[str, Verdict]:
    """Date -> verdict on one metric of one cell."""
    return {night.date: item.verdict for night in nights for item in night.cell_verdicts if (item.cell, item.metric) == (cell, metric)}


def night_json(night: Night) -> dict[str, object]:
    """Plain data, as night.json has it."""
    plain: dict[str, object] = json.loads(night.model_dump_json())
    return plain
