"""The stretches of a sweep: on which host, with which code and in which sitting each trial ran. Cells are compared within one.

Hosts of one kind differ by some percent, and so may one host on two days. A sweep that is continued elsewhere, or later, would else show
that as a difference of those cells of which more trials ran there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tasks.analysis.trial_row import TrialRow

PAUSE_S = 1800.0  # without any trial of the pool: what comes after is another sitting


@dataclass(frozen=True)
class Stretch:
    """Trials of one pool. `host`: its opaque id, else its name; empty where it is not known. `tree`: of the code that ran, or empty.

    `began`: when its first trial started, Unix time in s.
    """

    host: str
    tree: str
    began: float
    rows: list[TrialRow] = field(default_factory=list)


def host_name(row: TrialRow) -> str:
    """The host's opaque id, else its name; empty where the trial told neither."""
    return str(row.environment.get("host_id") or row.environment.get("host") or "")


def stretches(rows: Iterable[TrialRow]) -> list[Stretch]:
    """Those of the trials of one pool, in the order in which they began.

    A commit's trials have that commit's code, so what counts as other code is what ran later of the same commit.
    """
    started = sorted(rows, key=lambda row: (_times(row)[0], row.trial.index))
    codes: dict[str, list[str]] = {}  # commit -> its trees, in their order
    found: dict[tuple[str, int, int], Stretch] = {}
    sitting, last = 0, None
    for row in started:
        begin, end = _times(row)
        sitting += last is not None and begin - last > PAUSE_S
        last = end if last is None else max(last, end)
        tree, trees = str(row.environment.get("tree") or ""), codes.setdefault(row.trial.commit or "", [])
        if tree not in trees:
            trees.append(tree)
        key = (host_name(row), sitting, trees.index(tree))
        found.setdefault(key, Stretch(key[0], tree, begin)).rows.append(row)
    return list(found.values())


def numbers_of(rows: Sequence[TrialRow]) -> list[int]:
    """Of each trial of one pool the number of its stretch."""
    numbers = {id(row): number for number, stretch in enumerate(stretches(rows)) for row in stretch.rows}
    return [numbers[id(row)] for row in rows]


def _times(row: TrialRow) -> tuple[float, float]:
    return (row.result.started_at, row.result.finished_at) if row.result else (0.0, 0.0)
