"""The command that runs a sweep again: narrowed to one cell, with more repeats, or with more time."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from experiments.config import duration
from experiments.config.scalar_text import yaml_text
from experiments.trial import Trial
from tasks.sweep.request_text import command_of
from tasks.sweep.store import Plan

_REPEATS = ("--repeats", "-n", "--budget")
_FLAGS = ("--until-decided", "--no-until-decided")


def cell_command(trial: Trial, plan: Plan) -> str:
    """What measures the cell of one of a plan's trials anew, as often as the sweep did where that came by rounds of a race or a campaign.

    Empty where no command does that: the cells of a night are of several suites, and those of an A/A or A/B sweep are its sides.
    """
    if plan.is_night or plan.aa is not None or plan.ab is not None:
        return ""
    command = plan.command
    if plan.campaign is not None or plan.race is not None:
        repeats = sum(one.cell == trial.cell for one in plan.trials)
        command = with_repeats(command_of(plan.request, plan.profile), repeats)
    return reproduce(trial, command)


def anew_command(plan: Plan, more_s: float = 0.0) -> str:
    """What measures the sweep anew; of one sweep of a campaign the command of that sweep alone.

    One whose rounds came by time has all that it was given, also by `sweep resume`, and `more_s` beside: with what its own command gave it
    it would end where that one ended first.
    """
    command = plan.command if plan.campaign is None else command_of(plan.request, plan.profile)
    settings = plan.race or plan.decide
    words = _words(command, "run", "tune")
    if settings is None or words is None:
        return command
    kept = [word for option, parts in _options(words) if option != "--budget" for word in parts]
    had_s = max(settings.budget_s, plan.request.budget_s or 0.0)  # a campaign's run may have left less to the sweep than it asked for
    return shlex.join([*kept, "--budget", duration.in_minutes(had_s + more_s)])


def reproduce(trial: Trial, command: str) -> str:
    """A `sweep run` command narrowed to one cell: `--only axis=value` for each axis, in place of the command's own; empty for any other.

    Where the command chooses pools itself, `--pool` names the cell's, once.
    """
    words = _words(command, "run")
    if words is None:
        return ""
    kept = [word for option, parts in _options(words) if option not in ("--only", "--pool") for word in parts]
    chooses = any(option == "--pool" for option, _ in _options(words))
    if chooses:
        kept += ["--pool", trial.pool]
    for axis, value in trial.axes.items():
        if not (chooses and axis == "pool"):
            kept += ["--only", f"{axis}={yaml_text(value)}"]
    return shlex.join(kept)


def with_repeats(command: str, repeats: int) -> str:
    """The sweep's command with so many repeats of each cell; empty for what is no `sweep run`, such as a night's."""
    words = _words(command, "run")
    if words is None:
        return ""
    kept = [word for option, parts in _options(words) if option not in (*_REPEATS, *_FLAGS) for word in parts]
    return shlex.join([*kept, "--repeats", str(repeats)])


def is_run(command: str) -> bool:
    """Whether it is `sweep run`, and no night's, campaign's or other command."""
    return _words(command, "run") is not None


def _words(command: str, *kinds: str) -> list[str] | None:
    """The command's words; None where it is not `sweep` with one of these `kinds` behind it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return words if words[:1] == ["sweep"] and len(words) > 1 and words[1] in kinds else None


def _options(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(option's name, its words) of the options that are taken out or replaced, with their value; ("", [word]) of every other word."""
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if name in _FLAGS:
            yield name, [word]
        elif name not in ("--only", "--pool", *_REPEATS):
            yield "", [word]
        elif equals:
            yield name, [word]
        else:
            yield name, [word, *([value] if (value := next(rest, None)) is not None else [])]
