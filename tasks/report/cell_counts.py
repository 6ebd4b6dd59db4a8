"""How many cells a line speaks of: those that can run, and beside them those that are unsupported, in the same words everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from experiments.trial import Outcome
from tasks.report.text_format import plural

_FAILURES = frozenset(str(outcome) for outcome in Outcome if not outcome.expected)


def besides(unsupported: int) -> str:
    """What follows a number of cells that can run: ` (4 more are unsupported)`; empty where all can."""
    return f" ({unsupported} more {'is' if unsupported == 1 else 'are'} {Outcome.UNSUPPORTED})" if unsupported else ""


def disturbed_among(trials: Sequence[object]) -> str:
    """What follows a number of trials: `; other work disturbed 4 of 18`; empty where it disturbed none. `trials`: what disturbed each."""
    disturbed = sum(bool(what) for what in trials)
    return f"; other work disturbed {disturbed} of {len(trials)}" if disturbed else ""


def per_cell(trials: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """(how many trials each cell has, of how many cells): `2 to 3`, `6 cells (4 more are unsupported); 1 of 14 crashed`.

    `trials`: cell and outcome of each. Cells of which every trial is unsupported count apart: no number of trials is planned for them.
    Trials whose outcome is no result that a sweep may contain and succeed (`Outcome.expected`) are told, since they have no value.
    """
    outcomes: dict[str, list[str]] = {}
    for cell, outcome in trials:
        outcomes.setdefault(cell, []).append(outcome)
    can_run = [found for found in outcomes.values() if set(found) != {Outcome.UNSUPPORTED}]
    counts = sorted(len(found) for found in can_run or outcomes.values())
    many = f"{counts[0]} to {counts[-1]}" if counts and counts[0] < counts[-1] else str(counts[0]) if counts else "no"
    if not can_run and outcomes:
        return many, f"{plural(len(outcomes), 'cell')}, {'which is' if len(outcomes) == 1 else 'all of which are'} {Outcome.UNSUPPORTED}"
    return many, f"{plural(len(can_run), 'cell')}{besides(len(outcomes) - len(can_run))}{_failed([one for of in can_run for one in of])}"


def _failed(outcomes: Sequence[str]) -> str:
    """What follows the cells of trials that ended so: `; 1 of 6 crashed, 2 hang`; empty where none failed."""
    failed = Counter(outcome for outcome in outcomes if outcome in _FAILURES)
    told = [f"{count}{'' if place else f' of {len(outcomes)}'} {outcome}" for place, (outcome, count) in enumerate(sorted(failed.items()))]
    return f"; {', '.join(told)}" if told else ""
