"""Lengths of time as people write them: 2h, 90m, 1h30m, 45s."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from experiments.config.errors import ConfigError

HINT = "write it as 2h, 90m, 1h30m or 45s"
MOST_S = 30 * 86400.0  # a longer budget is a slip of the hand
_DURATION = re.compile(r"^(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?$")


def seconds(text: str) -> float:
    """`2h`, `90m`, `1h30m`, `45s` in seconds. Raises ValueError for any other text, for no time at all, and for more than 30 days."""
    parts = _DURATION.match(text.strip())
    if not parts or not any(parts.groups()):
        raise ValueError(f"{text!r} is not a duration")
    total = sum(float(part or 0) * size for part, size in zip(parts.groups(), (3600, 60, 1), strict=True))
    if not total > 0:
        raise ValueError(f"{text!r} is no time at all")
    if total > MOST_S:
        raise ValueError(f"{text[:20]!r} is more than 30 days")
    return total


def _checked(value: Any) -> Any:
    """For `Duration`: ValueErrors become what a user is told of the key."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"{value} has no unit; {HINT}")
    if isinstance(value, str):
        try:
            seconds(value)
        except ValueError as error:
            raise ValueError(f"{error}; {HINT}") from None
    return value


Duration = Annotated[str, BeforeValidator(_checked)]  # in files


def option_seconds(option: str, text: str) -> float:
    """The value of a command's option, such as `--budget 25m`, in seconds. Raises ConfigError that names the option."""
    try:
        return seconds(text)
    except ValueError as error:
        raise ConfigError.one(option, None, "", str(error), HINT) from None


def text(duration_s: float) -> str:
    """As `seconds` reads it, to the second: 25m, 1h30m, 45s. At least 1s."""
    whole = max(1, round(duration_s))
    parts = ((whole // 3600, "h"), (whole // 60 % 60, "m"), (whole % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def in_minutes(duration_s: float) -> str:
    """`text` of it in whole minutes, rounded up and at least one: for a time that is asked for."""
    return text(60 * max(1, math.ceil(duration_s / 60)))


def about(duration_s: float) -> str:
    """For people: 40 s, 18 min, 2 h 05 min."""
    if duration_s < 90:
        return f"{max(1, round(duration_s))} s"
    minutes = round(duration_s / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
