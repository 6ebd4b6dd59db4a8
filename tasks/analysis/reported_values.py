"""What devices of one kind report a little unlike of themselves, such as the size of their memory: equal within 1 %."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_REPORTED = frozenset({"max_clock_mhz", "application_clocks_mhz", "power_limit_w", "device_memory_bytes"})  # of a trial's environment
_NEAR = 1.01  # up to this ratio of the largest to the smallest


def about_equal(name: str, values: Iterable[Any]) -> bool:
    """Whether these values of the environment's `name`, numbers or their text, differ by no more than devices of one kind may.

    False for a value that is not known, and for every other name: counts, versions and settings, as a clock that was asked for
    (`locked_clocks_mhz`), are equal or differ.
    """
    if name not in _REPORTED:
        return False
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        return False
    return bool(numbers) and max(numbers) <= min(numbers) * _NEAR
