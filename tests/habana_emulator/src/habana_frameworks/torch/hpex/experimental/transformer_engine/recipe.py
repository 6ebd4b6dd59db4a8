"""How scales are found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DelayedScaling:
    """The real one takes scales from the largest magnitudes of the steps before; here each tensor has its own."""

    margin: int = 0
    interval: int = 1
