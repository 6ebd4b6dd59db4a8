"""Which nights are a cell's baseline. Pure. Dates are ISO 8601 texts, such as 2026-11-21.

A segment is a stretch of nights at one level. It ends where a change was accepted, by a person (`sweep accept`) or because it lasted for a
number of nights. Until then the baseline leaves out the nights since the alarm, so that a regression does not become the norm unnoticed. An
alarm that the nights after it do not confirm is over, and its nights count again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from experiments.config.strict import Strict
from experiments.stats.verdict import Verdict

_ALARM = (Verdict.SLOWER, Verdict.FASTER)
REFERENCE_LAG = 3  # nights: a change that one night does not see is compared with the same commit on two more


class Change(Strict):
    """An accepted change of level: from this night on a new segment."""

    cell: str
    metric: str
    since: str  # date of the first night at the new level
    verdict: Verdict
    accepted_on: str  # date of the night, or of the day, on which it was accepted
    by: str  # a person, or `nights` where it accepted itself
    note: str = ""
    cause: list[str] = Field(default_factory=list)  # what of the environment changed with it


def start_of(changes: Sequence[Change], date: str) -> str | None:
    """The date on which the segment that `date` belongs to began, None for the first."""
    return max((change.since for change in changes if change.since <= date), default=None)


def open_alarm(verdicts: Mapping[str, Verdict], changes: Sequence[Change], date: str) -> list[str]:
    """The nights before `date` of an alarm that is neither accepted nor over: all since its first, undecided ones included.

    `verdicts`: by date. `same`, or an alarm in the other direction, ends an alarm. Verdicts up to the night on which a change was accepted
    compared with the old level; accepting the change settles them.
    """
    start = start_of(changes, date)
    run: list[str] = []
    direction: Verdict | None = None
    for night in sorted(verdicts):
        if night >= date or (start is not None and night < start):
            continue
        verdict = verdicts[night]
        if verdict is Verdict.SAME or any(change.since <= night <= change.accepted_on for change in changes):
            run, direction = [], None
        elif verdict in _ALARM and verdict is not direction:
            run, direction = [night], verdict
        elif run:
            run.append(night)
    return run


def baseline_nights(nights: Sequence[str], verdicts: Mapping[str, Verdict], changes: Sequence[Change], date: str, most: int) -> list[str]:
    """The dates of `nights` that `date` is compared with: before it, in its segment, without an open alarm; the last `most` of them."""
    start = start_of(changes, date)
    apart = set(open_alarm(verdicts, changes, date))
    return [night for night in sorted(nights) if night < date and (start is None or night >= start) and night not in apart][-most:]


def reference_nights(nights: Sequence[str], verdicts: Mapping[str, Verdict], changes: Sequence[Change], date: str) -> list[str]:
    """The dates of `nights` whose commits are good to compare that of `date` with, the best first; empty without any.

    All are nights of a baseline: before `date`, in its segment, without an open alarm. The best is the newest of at least REFERENCE_LAG
    such nights ago, so that a slow-down that its first night missed is not what the next is held against; then older ones, then those
    that are newer, oldest first. While an alarm is open they are those of its first night: later ones may have missed what it saw, and
    the commits between which the change lies stay known. The caller takes the first whose commit is known and clean.
    """
    if alarm := open_alarm(verdicts, changes, date):
        return reference_nights(nights, verdicts, changes, alarm[0])
    known = baseline_nights(nights, verdicts, changes, date, len(nights))
    settled = [night for night in known if sum(night <= other for other in known) >= REFERENCE_LAG]
    return [*reversed(settled), *(night for night in known if night not in settled)]


def accepts_itself(verdicts: Mapping[str, Verdict], changes: Sequence[Change], date: str, nights: int) -> str | None:
    """The first night of an alarm that has lasted for `nights` nights with tonight (`date`), whose verdict is among them; else None."""
    tonight = verdicts.get(date)
    if tonight not in _ALARM:
        return None
    run = open_alarm(verdicts, changes, date)
    held = [night for night in run if verdicts[night] is tonight]
    if run and verdicts[run[0]] is not tonight:
        return None
    return (run[0] if run else date) if len(held) + 1 >= nights else None
