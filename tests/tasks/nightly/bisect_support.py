"""Pairs of made-up trials for a bisection."""

from __future__ import annotations

from collections.abc import Callable

from tasks.nightly.bisect import MeasurePair, PairValues


def pairs_of(measure: Callable[[str], float], disturbed: Callable[[], bool] = lambda: False) -> MeasurePair:
    """What is disturbed has values that would turn every decision."""

    def pair(first: str, second: str) -> PairValues:
        values = measure(first), measure(second)
        return PairValues(values[1], values[0], "made up") if disturbed() else PairValues(*values)

    return pair
