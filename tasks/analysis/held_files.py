"""The held time of a sweep on disk: from slots.jsonl, the journals and the results; of a published sweep from what its flow kept."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalFollower
from cluster.trial_layout import HELD_TIME, JOURNAL, SLOTS, TRIALS
from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.config.strict import Strict
from experiments.json_file import read_model
from tasks.analysis.held_time import DISCARDED, UNKNOWN, AttemptMarks, Ended, HeldTime, HeldTrial, account, ended_with, marks_of
from tasks.sweep.slot_log import read_holds

if TYPE_CHECKING:
    from tasks.analysis.results import Sweep  # Arrow, which `sweep list` does without

_log = logging.getLogger(__name__)
_SCHEMA = 2  # before it all of a trial without a rate was called discarded


class KeptTrial(Strict):
    """One hold of a trial; see HeldTrial."""

    trial: str
    pool: str
    parts: dict[str, float]
    emulated: bool


class KeptHeldTime(Strict):
    """held_time.json: the holds in the order of the run, slot-seconds by part."""

    schema_version: int = 1
    slots: int
    trials: list[KeptTrial]

    def whole(self, ended: Mapping[str, Ended]) -> HeldTime:
        """As `read_kept`."""
        trials = [HeldTrial(**trial.model_dump()) for trial in self.trials]
        if self.schema_version < _SCHEMA:
            trials = [replace(trial, parts=_parts_of_today(trial.parts, ended.get(trial.trial))) for trial in trials]
        return HeldTime(trials, self.slots)


def _parts_of_today(parts: Mapping[str, float], ended: Ended | None) -> Mapping[str, float]:
    """The parts of a hold, of which an early file called discarded what was a trial's only attempt, and its result. Of a trial without a
    rate that had several it does not tell how long those took that were repeated."""
    if DISCARDED not in parts or ended is None or ended.whole is None:
        return parts
    part = ended.whole if ended.attempt == 1 else UNKNOWN
    rest = {name: seconds for name, seconds in parts.items() if name != DISCARDED}
    return {**rest, part: rest.get(part, 0.0) + parts[DISCARDED]}


def held_of(sweep: Sweep, *, emulated: bool = False) -> HeldTime | None:
    """The held time of the sweep's trials that measured, or with `emulated` of the others alone. None if no slot's time was recorded."""
    whole = _derived(sweep) or read_kept(sweep.dir, _ended(sweep))
    trials = [trial for trial in whole.trials if trial.emulated == emulated] if whole else []
    return HeldTime(trials, whole.slots) if whole and trials else None


def keep_held(sweep: Sweep) -> None:
    """Write held_time.json into the folder of a sweep whose slots' times were recorded. Raises OSError."""
    held = _derived(sweep)
    if held is not None:
        trials = [KeptTrial(trial=one.trial, pool=one.pool, parts=dict(one.parts), emulated=one.emulated) for one in held.trials]
        kept = KeptHeldTime(schema_version=_SCHEMA, slots=held.slots, trials=trials)
        atomic_write(sweep.dir / HELD_TIME, kept.model_dump_json(indent=1) + "\n")


def read_kept(sweep_dir: Path, ended: Mapping[str, Ended] = MappingProxyType({})) -> HeldTime | None:
    """What held_time.json holds; None without it, or where it is damaged.

    `ended`: how trials ended, by key. Of one that is not in it all stays discarded that an early file calls so.
    """
    try:
        kept = read_model(sweep_dir / HELD_TIME, KeptHeldTime, "`sweep report` writes it again")
    except DamagedFile as error:
        _log.warning("%s", error)
        return None
    return kept.whole(ended) if kept else None


_known: WeakKeyDictionary[Sweep, tuple[object, HeldTime | None]] = WeakKeyDictionary()  # of sweeps that are loaded


def _derived(sweep: Sweep) -> HeldTime | None:
    """From slots.jsonl; once, while that stays the same, for all who ask for a loaded sweep's."""
    try:
        found = (sweep.dir / SLOTS).stat()
        state: object = found.st_ino, found.st_size, found.st_mtime_ns
    except OSError:
        state = None
    if sweep not in _known or _known[sweep][0] != state:
        _known[sweep] = state, _account(sweep)
    return _known[sweep][1]


def _account(sweep: Sweep) -> HeldTime | None:
    holds = read_holds(sweep.dir / SLOTS)
    if not holds:
        return None
    of_plan = {row.trial.key for row in sweep.rows}
    ended: dict[str, Ended | None] = {hold.trial: None for hold in holds if hold.trial not in of_plan}  # run again under another key
    emulated = frozenset(row.trial.key for row in sweep.rows if row.emulated)
    known = {row.trial.key: row.marks for row in sweep.rows}
    attempts = cache(lambda key: known.get(key) or _attempts(sweep.dir / TRIALS / key / JOURNAL))
    return account(holds, attempts, ended | _ended(sweep), emulated)


def _ended(sweep: Sweep) -> dict[str, Ended]:
    return {row.trial.key: ended_with(row.result.attempt, row.result.outcome) for row in sweep.rows if row.result}


def _attempts(path: Path) -> Mapping[int, AttemptMarks]:
    """The marks of each attempt in a journal, by number; {} for one that is not there or damaged, which other readers tell of."""
    try:
        return marks_of(JournalFollower(path).poll())
    except (JournalError, OSError):
        return {}
