"""What the shell completes: profiles, settings and axis values of the suite that is being typed, trials of a sweep.

Whatever is wrong with the suite or the sweep, nothing is printed into a command line: then there is nothing to complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import typer

from flows.cli.application import short_help

if TYPE_CHECKING:
    from experiments.spec.schema import Suite

Completion = str | tuple[str, str]  # a value, or a value and what it is


def quiet(complete: Callable[..., Iterable[Completion]]) -> Callable[..., list[Completion]]:
    """The same completions; none where there is an error."""

    @wraps(complete)
    def wrapped(*arguments: Any, **named: Any) -> list[Completion]:
        with suppress(Exception):
            return list(complete(*arguments, **named))
        return []

    return wrapped


@quiet
def profile_choices(ctx: typer.Context, incomplete: str) -> Iterable[Completion]:
    """The profiles of the suite."""
    from experiments.spec.load import profile_names

    return ["auto", *profile_names(_suite_name(ctx))]


@quiet
def settings(ctx: typer.Context, incomplete: str) -> Iterable[Completion]:
    """`key=` of the workload's parameters; of one that has begun to be typed `key=value`, where its values can be listed."""
    from experiments import workloads

    suite = _suite(ctx)
    fields, axes = workloads.load(suite.workload).Parameters.model_fields, _axis_values(suite)
    completions: list[Completion] = []
    for name, field in fields.items():
        values = dict.fromkeys([*_choices(field.annotation), *axes.get(name, [])]) if incomplete else []
        completions += [f"{name}={value}" for value in values] or [(f"{name}=", short_help(field.description or ""))]
    return completions


@quiet
def axis_values(ctx: typer.Context, incomplete: str) -> Iterable[Completion]:
    """`axis=value` of the suite's cells."""
    return [f"{axis}={value}" for axis, values in _axis_values(_suite(ctx)).items() for value in values]


@quiet
def trial_names(ctx: typer.Context, incomplete: str) -> Iterable[Completion]:
    """The trials of the sweep, spelled without spaces; their keys to who begins with one."""
    from tasks.sweep.find_sweep import LAST, newest_sweep
    from tasks.sweep.find_trial import spelled
    from tasks.sweep.store import SweepStore

    chosen = ctx.params.get("sweep") or LAST
    trials = SweepStore(newest_sweep() if chosen == LAST else chosen).load_plan().trials
    keys = [(trial.key, trial.name) for trial in trials] if incomplete else []
    return [*(spelled(trial) for trial in trials), *keys]


def _suite_name(ctx: typer.Context) -> str:
    """An option whose value is still to come keeps click from giving arguments their names: then the suite is the first of them.

    `sweep ab` may have several suites, of which the first counts, or none: then it takes bridgetower.
    """
    named = ctx.params.get("suite")
    if ctx.info_name == "ab":
        return str(named[0]) if named else "bridgetower"
    return str(named or ctx.args[0])


def _suite(ctx: typer.Context) -> Suite:
    from cluster.pools.pool import load_pools
    from experiments.spec.load import load_suite

    profile = ctx.params.get("profile")
    return load_suite(_suite_name(ctx), profile=None if profile in (None, "auto") else profile, pools=load_pools())


def _axis_values(suite: Suite) -> dict[str, list[str]]:
    """Axis -> its values in the suite's cells, as they are typed."""
    from experiments.config.scalar_text import yaml_text
    from experiments.spec import matrix

    cells = matrix.expand(suite)
    return {axis: list(dict.fromkeys(yaml_text(cell.axes[axis]) for cell in cells if axis in cell.axes)) for axis in suite.axis_names}


def _choices(annotation: Any) -> list[str]:
    """The values that a type lists, of any of its alternatives."""
    if annotation is bool:
        return ["true", "false"]
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    return [value for part in get_args(annotation) for value in _choices(part)]
