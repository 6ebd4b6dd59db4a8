"""What a trial's folder holds, checked: that each file is as it was written, is of this trial, and fits the others.

A damaged record is kept aside, below `damaged-a<attempt>` in the trial's folder, and the trial is measured anew; so is that of a crash,
below `crashed-a<attempt>`, where that is asked for.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cluster import launchers
from cluster.journal.errors import JournalError, LaterJournal
from cluster.journal.journal import VERSION, Journal, JournalFollower, read_journal
from cluster.sampler.state_file import read_records
from cluster.trial_layout import ASIDE, DAMAGED, DEVICE_STATE, JOURNAL, LAUNCH, RESULT, STEPS, TRACE, TRIAL, kept_aside
from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.json_file import read_model, sealed_text
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.file_stamp import Stamp, file_stamp
from tasks.sweep.result_file import AGAIN, read_result
from tasks.sweep.whole_records import record_digest, whole_records

_RECORD = (TRIAL, LAUNCH, JOURNAL, DEVICE_STATE, RESULT, STEPS)  # what is looked at; kept aside with the trace, while the log goes on
_ATTEMPT = re.compile(rb'"attempt":\s*(\d{1,4})\b')


def journal_of(folder: Path, result: TrialResult | None, key: str | None = None) -> Journal:
    """The attempt that the result is of; the last one where there is no result, or the journal does not have its attempt.

    They differ where a disturbed trial was to be measured again and that attempt was lost: what the first one measured stays the result.
    `key`: the trial that the journal must be of. Raises JournalError, also where it is not what the result says of it.
    """
    journal = measured_journal(folder, result, key) if result else Journal()
    return journal if journal.attempt else read_journal(folder / JOURNAL, trial=key)


def measured_journal(folder: Path, result: TrialResult, key: str | None = None) -> Journal:
    """The attempt that the result is of; empty where it left none. Raises JournalError as `journal_of`."""
    path = folder / JOURNAL
    journal = read_journal(path, result.attempt, key)
    if result.journal is not None and journal.mark != result.journal:
        if not os.path.lexists(path):
            raise JournalError(path, 0, f"is missing, and {RESULT} counts {result.journal.records} records")
        lines, counted = _lines(path), f"{RESULT} counts {result.journal.records} records of attempt {result.attempt}"
        if not lines:
            raise JournalError(path, 0, f"is empty, and {counted}")
        found = f"has {journal.mark.records} other records" if journal.mark else "ends before its last attempt was closed"
        raise JournalError(path, lines, f"{found}, and {counted}")
    if result.outcome is Outcome.OK and journal.version >= VERSION and journal.mark is None:
        raise JournalError(path, _lines(path), f"ends before attempt {result.attempt} was closed, and {RESULT} says that it ended")
    return journal


def _lines(path: Path) -> int:
    follower = JournalFollower(path)
    follower.poll()
    return follower.lines


@dataclass(frozen=True)
class TrialRecord:
    """A trial's result, None while it has none, and the attempt of its journal that the result is of, else the last; empty without one."""

    result: TrialResult | None
    journal: Journal


def read_record(key: str, folder: Path) -> TrialRecord:
    """The record of the trial with this key, whole as far as it goes: also of one that has not begun or not ended. Raises DamagedFile."""
    told = read_model(folder / TRIAL, Trial, AGAIN)
    if told is not None and told.key != key:
        raise DamagedFile(folder / TRIAL, "", f"is of trial {told.key}", AGAIN)
    launchers.load(folder)
    result = read_result(folder, key)
    return TrialRecord(result, journal_of(folder, result, key))


@dataclass(frozen=True)
class Checked:
    """A trial's record after a look at all of it.

    `result`: None while it has none, and of a damaged record. `damage`: the first thing that is wrong with it, None for a whole one.
    """

    result: TrialResult | None = None
    damage: DamagedFile | None = None


def checked(trial: Trial, folder: Path) -> Checked:
    """A trial's result, and what is wrong with its record, the sampler's records included.

    Files that stayed the same since this process last looked are not read again: a resume asks several times. A record that was read in
    full before is not parsed again while its bytes are the same (whole_records.py), but for its result; `keep_whole` keeps that for other
    processes. Raises LaterJournal: such a record is not damaged, so its trial must not run again here.
    """
    found = _look(trial, folder)
    if isinstance(found.damage, LaterJournal):
        raise found.damage
    return found


def damage_of(trial: Trial, folder: Path) -> DamagedFile | None:
    """The first thing that is wrong with a trial's record, as `checked` finds it, a LaterJournal too; None for a whole one."""
    return _look(trial, folder).damage


def _look(trial: Trial, folder: Path) -> Checked:
    return _checked(trial.key, folder, tuple(file_stamp(f"{folder}/{name}") for name in _RECORD))


@lru_cache(maxsize=100_000)  # of the largest sweeps: with fewer, a pass over all trials would find none of the last pass
def _checked(key: str, folder: Path, stamps: tuple[Stamp, ...]) -> Checked:
    known, digest = whole_records(folder.parent.parent), record_digest(folder)
    try:
        if digest is not None and known.has(key, digest):
            return Checked(read_result(folder, key))
        result = read_record(key, folder).result
        if result is not None:
            read_records(folder / DEVICE_STATE, result.attempt, result.device_state)
    except DamagedFile as error:
        return Checked(damage=error)
    if digest is not None and digest == record_digest(folder):  # nobody wrote meanwhile
        known.add(key, digest)
    return Checked(result)


def keep_whole(sweep_dir: Path) -> None:
    """Keep for other processes which records of this sweep were found whole."""
    whole_records(sweep_dir).save()


def tell_trial(trial: Trial, folder: Path) -> None:
    """Write trial.json, from which a process learns what to run, unless it says this already: its data may lie elsewhere by now. Raises
    OSError, and DamagedFile where it was changed by hand."""
    if read_model(folder / TRIAL, Trial, AGAIN) != trial:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / TRIAL, sealed_text(trial))


def keep_aside(folder: Path, why: str = DAMAGED) -> Path:
    """Move a trial's record into a folder of its own beside it, named for its last attempt as far as that can be told. Raises OSError."""
    attempt = max(1, last_attempt(folder), *_numbers(folder, RESULT))
    while any(os.path.lexists(folder / kept_aside(attempt, each)) for each in ASIDE):
        attempt += 1
    aside = folder / kept_aside(attempt, why)
    aside.mkdir()
    for name in (*_RECORD, TRACE):
        if os.path.lexists(folder / name):
            (folder / name).rename(aside / name)
    return aside


def last_attempt(folder: Path) -> int:
    """The highest number of an attempt that was started, damaged files and records kept aside included; 0 for none.

    Numbers go on after damage: a job and the objects on a storage are named for their attempt.
    """
    kept = (path.name for why in ASIDE for path in folder.glob(kept_aside("*", why)))
    aside = [int(number) for name in kept if (number := name.rpartition("-a")[2]).isdigit()]
    return max(0, *aside, *_numbers(folder, LAUNCH), *_numbers(folder, JOURNAL))


def _numbers(folder: Path, name: str) -> list[int]:
    """Every number of an attempt in a file, [0] in one without any: of a damaged one it tells what is still to be seen."""
    try:
        return [0, *(int(found) for found in _ATTEMPT.findall((folder / name).read_bytes()))]
    except OSError:
        return [0]
