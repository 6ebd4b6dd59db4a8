"""The order in which a report shows the values of an axis."""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.trial import Scalar

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmbt])", re.IGNORECASE)
_FACTOR = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def parameters_named(value: Scalar) -> float | None:
    """How many parameters a model has by its name: 3.5e8 for `350m`, 6.5e9 for `6.5b`; None for a name that is no number of parameters."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    return float(found[1]) * _FACTOR[found[2].lower()] if found else None


def ordered_values(values: Sequence[Scalar]) -> list[Scalar]:
    """Each once: numbers by size, then models that are named for their size by it, then other words in the order given, the plan's."""
    numbers = sorted({value for value in values if isinstance(value, int | float) and not isinstance(value, bool)})
    words = list(dict.fromkeys(value for value in values if not isinstance(value, int | float) or isinstance(value, bool)))
    sized = sorted((value for value in words if parameters_named(value) is not None), key=lambda value: parameters_named(value) or 0.0)
    return [*numbers, *sized, *(value for value in words if parameters_named(value) is None)]
