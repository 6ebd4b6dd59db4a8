"""What tells apart sweeps of one page that have the same heading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def told_apart(heading: str, own: Mapping[str, str], alike: Sequence[Mapping[str, str]]) -> str:
    """The heading, with what its sweep set or chose otherwise than others of the same heading, one of which may have set nothing.

    `own`: name -> value as text, as of `set_and_chosen`; `alike`: of all sweeps of that heading, its own among them.
    """
    names = dict.fromkeys(name for one in alike for name in one)
    differ = [name for name in names if len({one.get(name) for one in alike}) > 1]
    return "; ".join([heading, *(f"{name} {own[name]}" for name in differ if name in own)])
