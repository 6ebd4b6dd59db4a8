"""How far trials of one setting lie apart: what a sweep's repeats, or past sweeps, say of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The standard deviation between trials of one setting, of the logarithm (in the metric's unit on linear scales), known with `df`
    degrees of freedom. A trial's value holds the noise of its steps, so this standard deviation does too.

    Raises ValueError for a negative or infinite `sd`, or `df` of 0 or less.
    """

    sd: float
    df: float

    def __post_init__(self) -> None:
        if not 0 <= self.sd < math.inf or not self.df > 0:
            raise ValueError(f"a spread needs 0 <= sd < inf and df > 0, got {self.sd} and {self.df}")


# (pool, name of its device where the trials know it, metric) -> spread between trials as past sweeps show it; None: not known
SpreadLookup = Callable[[str, str | None, str], Spread | None]
