"""The looks at a sweep that runs, as its plan holds them: plain data without numpy. Their significance levels: interim_levels.py."""

from __future__ import annotations

from experiments.config.strict import Strict

KEPT = 0.25  # of what is left of the chance of error: kept for rounds that a larger budget adds
RACE_CHANCE = 0.05  # of dropping the best setting, or of a wrong winner, over a whole race


class Look(Strict):
    """A look at all comparisons after `round` rounds. `spent`: the share of the chance of error that looks may have used by then."""

    round: int
    spent: float


def only_look(rounds: int) -> Look:
    """The look at a sweep whose trials were all planned at the start, when they are done: what it may use, KEPT aside."""
    return Look(round=rounds, spent=1 - KEPT)
