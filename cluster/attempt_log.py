"""The log of a trial's attempts: one text, where a line stands above each attempt's output."""

from __future__ import annotations

import re
import time
from itertools import pairwise

_HEADING = re.compile(r"^--- attempt (\d+) at .*\n", re.MULTILINE)


def heading(attempt: int, at: float | None = None) -> str:
    """The line above an attempt's output. `at`: when it began, Unix s; now if not given."""
    return f"--- attempt {attempt} at {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(at))}\n"


def attempts_in(text: str) -> dict[int, str]:
    """Attempt -> its part of the text, with its heading: with each, where it was begun twice, since its first start was never recorded.

    What an early version wrote without a heading belongs to no attempt.
    """
    found = list(_HEADING.finditer(text))
    starts = [*(one.start() for one in found), len(text)]
    parts: dict[int, str] = {}
    for one, (start, end) in zip(found, pairwise(starts), strict=True):
        parts[int(one[1])] = parts.get(int(one[1]), "") + text[start:end]
    return parts


def with_attempt(text: str, attempt: int, output: str, at: float | None = None) -> str:
    """The text with an attempt's output at its end, in place of what it has of that attempt."""
    before = "".join(part for number, part in attempts_in(text).items() if number != attempt)
    return f"{before}{heading(attempt, at)}{output}"
