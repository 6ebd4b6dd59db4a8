"""Where a function is 0. scipy.optimize takes a third of a second to import: only who looks for a root imports it."""

from __future__ import annotations

from collections.abc import Callable


def root(function: Callable[[float], float], low: float, high: float, *, xtol: float = 2e-12, rtol: float = 8.9e-16) -> float:
    """Where `function` is 0 between `low` and `high`, by Brent's method, to within `xtol` + `rtol` times the root.

    Raises ValueError where the function has the same sign at both ends.
    """
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=xtol, rtol=rtol))
