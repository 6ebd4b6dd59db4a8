"""Servers that several tests share end with the last of these tests, not with the session: idle, they take a share of a core and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

_left: Counter[str] = Counter()  # tests to come, by the fixture that they share
_kept: dict[str, ExitStack] = {}


def expect(names: Iterable[str]) -> None:
    """Each name stands for one test that will use the fixture of that name."""
    _left.clear()
    _left.update(names)


def used(name: str) -> None:
    """One of these tests is over. Ends the fixture after the last; raises what its end raises."""
    _left[name] -= 1
    if _left[name] <= 0 and name in _kept:
        _kept.pop(name).close()


@contextmanager
def kept(name: str) -> Iterator[ExitStack]:
    """For a fixture of the session: what is pushed to the stack runs after the fixture's last test, at the latest with the session."""
    with ExitStack() as ends:
        _kept[name] = ends
        yield ends
