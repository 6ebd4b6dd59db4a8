"""Which trials of a plain sweep are traced: on a GPU the first of each cell, so that every report there says where the peak goes.

A suite, profile or --set that names `profile_steps` decides for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.spec.matrix import PlannedCell
from experiments.spec.schema import Suite
from experiments.trial import WORKTREE

STEPS = 4  # one that does not count and a round of FLAVA's three kinds of step: the most kinds
REPEATS = 1
DEVICES = ("cuda",)  # whose peaks and clocks are known


def with_traces(cells: Sequence[PlannedCell], suite: Suite) -> list[PlannedCell]:
    """The cells, of which those on GPUs trace steps after their window, in as many repeats as the suite says, else in the first."""
    if "profile_steps" in _named(suite):
        return list(cells)
    return [_traced(cell) if _is_traced(cell) else cell for cell in cells]


def _is_traced(cell: PlannedCell) -> bool:
    """Not a reference of loss parity, which tells of losses alone. Not a cell of another commit, which may not know the parameters. And not
    on several devices the largest batch that fits: a trace needs memory for which its search left no room, and a rank that lacks it takes
    the trial with it (on one device such a trial says so and counts: beside_window.py)."""
    at_the_limit = cell.parameters["batch_size"] == "max" and cell.parameters["devices"] > 1
    return cell.device in DEVICES and not cell.reference and cell.commit == WORKTREE and not at_the_limit


def _traced(cell: PlannedCell) -> PlannedCell:
    repeats = cell.parameters["profile_repeats"]
    return replace(cell, parameters={**cell.parameters, "profile_steps": STEPS, "profile_repeats": REPEATS if repeats is None else repeats})


def _named(suite: Suite) -> Iterator[str]:
    """Every parameter and axis to which the suite gives a value."""
    yield from (*suite.fixed, *suite.axes, *suite.sets)
    for group in suite.linked:
        yield from group
    for values in (*suite.include, *(condition.set for condition in suite.conditions)):
        yield from values
