"""A request as a command line, and what of it is not its suite's and profile's own."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.config import duration
from experiments.config.scalar_text import yaml_text
from tasks.sweep.store import Plan, Request


def command_of(request: Request, profile: str) -> str:
    """The `sweep run` command line that requests the same sweep."""
    return shlex.join(["sweep", "run", *arguments_of(request, profile)])


def arguments_of(request: Request, profile: str) -> list[str]:
    """A request as arguments of a command."""
    arguments = [request.suite, "--profile", profile, *overrides_of(request)]
    if request.budget_s is not None:
        arguments += ["--budget", duration.text(request.budget_s)]
    if request.until_decided is not None:
        arguments += ["--until-decided" if request.until_decided else "--no-until-decided"]
    if request.pool_wait_s is not None:
        arguments += ["--pool-wait", f"{request.pool_wait_s:g}"]
    return arguments


def overrides_of(request: Request) -> list[str]:
    """What overrides the suite and its profile, as arguments: without it two sweeps of one profile look alike."""
    arguments = []
    for pool in request.pools:
        arguments += ["--pool", pool]
    for name, value in request.set.items():
        arguments += ["--set", f"{name}={yaml_text(value)}"]
    for axis, values in request.only.items():
        arguments += [argument for value in values for argument in ("--only", f"{axis}={yaml_text(value)}")]
    if request.repeats is not None:
        arguments += ["--repeats", str(request.repeats)]
    return arguments


def overrides_json(request: Request) -> dict[str, Any]:
    """The same as data: pools, set, only, repeats."""
    return request.model_dump(include={"pools", "set", "only", "repeats"})


def short_overrides(overrides: Mapping[str, Any], most: int) -> str:
    """`overrides_json` in a column of a table, of `most` characters: `steps=50 width=64,256 pool=cpu repeats=3`; cut with an ellipsis.

    Settings and axes first, since they tell sweeps apart where a table tells pools and trials already.
    """
    parts = [f"{name}={text}" for part in ("set", "only") for name, text in _named(overrides, part)]
    parts += [f"pool={','.join(overrides['pools'])}"] if overrides["pools"] else []
    parts += [f"repeats={overrides['repeats']}"] if overrides["repeats"] is not None else []
    text = " ".join(parts)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def set_and_chosen(set_: Mapping[str, Any], only: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """What is set and chosen beside a profile, by name, as text: `width` -> `64 and 256`."""
    values = {**{name: [value] for name, value in set_.items()}, **only}
    return {name: " and ".join(map(yaml_text, each)) for name, each in values.items()}


def _named(overrides: Mapping[str, Any], part: str) -> Iterator[tuple[str, str]]:
    for name, value in overrides[part].items():
        yield name, ",".join(map(yaml_text, value)) if part == "only" else yaml_text(value)


def asked_by(plan: Plan) -> str:
    """The command that asked for a sweep. A campaign's names its file alone: its overrides of this sweep stand behind it."""
    overrides = overrides_of(plan.request)
    hidden = set(overrides) - set(shlex.split(plan.command))
    return f"{plan.command} (this sweep: {shlex.join(overrides)})" if hidden else plan.command
