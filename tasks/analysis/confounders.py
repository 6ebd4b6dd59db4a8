"""What differs between cells that are compared and is not an axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from experiments.parameters import NAMES_OF_SETTINGS
from tasks.analysis.cell import Cell
from tasks.analysis.packages import package_confounders
from tasks.analysis.reported_values import about_equal

_OF_THE_COMMIT = frozenset({"git_commit", "git_dirty", "git_checked", "tree"})
_OF_FIRST_TRIALS = frozenset({"compilation", "weights"})  # later ones find what the first has kept
_AFTER_THE_WINDOW = frozenset({"profile_steps", "profile_repeats", "communication_steps"})  # what they ask for is done when all is measured
_OF_THE_POOL = frozenset({"device_kind", "device_name", "device_count", "pool"})


def value_key(value: Any) -> str:
    return repr(value)


def confounders(cells: Sequence[Cell], *, between: bool = False) -> list[tuple[str, list[tuple[str, list[Cell]]]]]:
    """What differs between cells that were compared and is not an axis: (name, [(value, cells), ...]).

    Environment values, versions of packages, and parameters that the suite set differently without an axis. What a device reports of its
    clocks, power limit and memory counts as equal within 1 %; all else must be equal. Where only a first trial compiles or draws weights,
    cells in which as many trials did are alike.
    `between`: without what as many trials of each cell have, such as hosts that all cells ran on equally often.
    """
    differences = []
    names = {axis for cell in cells for axis in cell.axes}
    axes = {axis for axis in names if len({value_key(cell.axes.get(axis)) for cell in cells}) > 1}
    hidden = _hidden(cells, axes)
    environments = {id(row.environment): row.environment for cell in cells for row in cell.measured}  # trials that were kept share some
    keys = dict.fromkeys(key for environment in environments.values() for key in environment)
    for name in keys if len(environments) > 1 else ():
        if name in hidden or name == "packages":
            continue
        groups: dict[str, list[Cell]] = {}
        mixes = set()
        for cell in cells:
            values = [_text(row.environment.get(name)) for row in cell.measured]
            if name == "compilation" and {*values} == {"none"}:
                continue  # the parameter `compile` tells the same
            mixes.add(tuple(sorted(Counter(values).items())))
            for value in dict.fromkeys(values):
                groups.setdefault(value, []).append(cell)
        if len(mixes) == 1 and (between or name in _OF_FIRST_TRIALS):
            continue
        if len(groups) > 1 and not about_equal(name, (row.environment.get(name) for cell in cells for row in cell.measured)):
            differences.append((name, list(groups.items())))
    differences += package_confounders(cells, {*hidden, *keys})
    meant = {name for cell in cells for name in cell.named} if axes & NAMES_OF_SETTINGS else set()
    for name in _changing(cells):
        if name in meant or name in _AFTER_THE_WINDOW:
            continue
        settings: dict[str, list[Cell]] = {}
        for cell in cells:
            settings.setdefault(str(cell.trial.parameters.get(name)), []).append(cell)
        if len(settings) > 1 and name not in axes:
            differences.append((name, list(settings.items())))
    return differences


def _text(value: Any) -> str:
    """A value of the environment; a whole number is the same as int and as float."""
    if value is None:
        return "unknown"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _changing(cells: Sequence[Cell]) -> list[str]:
    """The parameters that are not the same in all cells."""
    if not cells:
        return []
    first, *others = (cell.settings for cell in cells)
    names = dict.fromkeys([*first, *(name for other in others for name in other)])
    return [name for name in names if any(other.get(name) != first.get(name) for other in others)]


def _hidden(cells: Sequence[Cell], axes: set[str]) -> set[str]:
    """Values of the environment that the varied axes stand for, or that another value tells."""
    hidden = {*(_OF_THE_POOL if "pool" in axes else ()), *(("world_size", "device_count") if "devices" in axes else ())}
    if any(row.environment.get("host_id") for cell in cells for row in cell.measured):
        hidden.add("host")  # the opaque id tells the same
    environments, commits = (len({getattr(cell.trial, name) for cell in cells}) > 1 for name in ("environment", "commit"))
    if "environment" in axes or environments:  # the section on environments has them
        hidden |= {"python", *(name for cell in cells for row in cell.measured for name in row.packages)}
    if "commit" in axes or commits:
        hidden |= _OF_THE_COMMIT
    elif _one_code(cells):
        hidden.add("git_checked")  # by whom the commit is told is no difference of what ran
    return hidden


def _one_code(cells: Sequence[Cell]) -> bool:
    """Whether all trials tell one commit and one tree."""
    told = {(row.environment.get("git_commit"), row.environment.get("tree")) for cell in cells for row in cell.measured}
    return len(told) == 1 and None not in next(iter(told))
