"""Which trials of a sweep are traced: on a GPU the first of each cell, so that every report there says where the peak goes.

A suite, profile or --set that names `profile_steps` decides for itself. Parity references, which tell of losses alone, are not traced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.spec.matrix import PlannedCell
from experiments.spec.schema import Suite

TRACED = {"profile_steps": 4, "profile_repeats": 1}  # one that does not count and a round of FLAVA's three kinds of step: the most kinds
DEVICES = ("cuda",)  # whose peaks and clocks are known


def with_traces(cells: Sequence[PlannedCell], suite: Suite) -> list[PlannedCell]:
    """The cells, of which those on GPUs trace steps after their measured window unless `suite` says how many."""
    if not TRACED.keys().isdisjoint(_named(suite)):
        return list(cells)
    return [replace(cell, parameters=cell.parameters | TRACED) if cell.device in DEVICES and not cell.reference else cell for cell in cells]


def _named(suite: Suite) -> Iterator[str]:
    """Every parameter and axis to which the suite gives a value."""
    yield from (*suite.fixed, *suite.axes, *suite.sets)
    for group in suite.linked:
        yield from group
    for values in (*suite.include, *(condition.set for condition in suite.conditions)):
        yield from values
