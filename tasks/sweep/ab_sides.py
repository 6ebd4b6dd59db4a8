"""The two sides of an A/B sweep, from how a person writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.config.errors import ConfigError
from experiments.config.yaml_document import is_text, scalar
from experiments.trial import RUN_AXES
from tasks.sweep.ab_settings import Kind

_FORMS = "a commit (main, HEAD~2, worktree), env:NAME, or settings such as precision=bf16,compile=inductor"


@dataclass(frozen=True)
class Side:
    """One side as it was written. `sets`: what it sets besides the request's own --set, an environment and a commit included."""

    text: str
    kind: Kind
    sets: Mapping[str, Any]


def short(text: str) -> str:
    """What a side is called: the first 12 digits of a commit's 40, which name it as well; else what was written."""
    return text[:12] if re.fullmatch("[0-9a-f]{40}", text) else text


def parse_sides(a: str, b: str) -> tuple[Side, Side]:
    """Both sides. Raises ConfigError for text that is none, and for sides of two kinds: what differs would be two things at once."""
    one, other = _side("A", a), _side("B", b)
    if one.kind != other.kind:
        problem = f"A is of {one.kind} and B of {other.kind}, so that both would differ"
        fix = "name two of one kind; env:default is the pool's own Python, worktree the code as it lies here"
        raise ConfigError.one("A and B", None, "", problem, fix)
    return one, other


def _side(name: str, text: str) -> Side:
    if not text or not is_text(text):
        raise ConfigError.one(name, None, repr(text), "names nothing", f"write {_FORMS}")
    prefix, colon, rest = text.partition(":")
    if colon and prefix == "env":
        return Side(text, "environments", {"environment": rest})
    if colon and prefix == "commit":
        return Side(text, "commits", {"commit": rest})
    if (colon and prefix == "set") or "=" in text:
        return Side(text, "settings", _settings(name, rest if colon and prefix == "set" else text))
    return Side(text, "commits", {"commit": text})


def _settings(side: str, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise ConfigError.one(side, None, part, "is not KEY=VALUE", f"write {_FORMS}")
        if name in RUN_AXES:
            hint = "both sides run on the same pool: choose it with --pool" if name == "pool" else "write env:NAME, or the commit alone"
            raise ConfigError.one(side, None, name, "is no setting of a workload", hint)
        if name in found:
            raise ConfigError.one(side, None, name, "is given twice", "keep one of the two")
        found[name] = scalar(value)
    return found
