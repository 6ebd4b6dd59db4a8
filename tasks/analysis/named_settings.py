"""What the values of an axis that only names settings stand for, such as a ladder's rungs: from the suite's conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.config.scalar_text import table_text
from experiments.parameters import NAMES_OF_SETTINGS
from experiments.spec.schema import Suite

if TYPE_CHECKING:
    from tasks.analysis.cell import Cell


def named_by(suite: Suite, axes: Iterable[str]) -> frozenset[str]:
    """Parameters that the suite's conditions set by a naming axis: what the axis means, so no confounder between two of its values."""
    names = NAMES_OF_SETTINGS.intersection(axes)
    return frozenset(parameter for condition in suite.conditions if names.intersection(condition.when) for parameter in condition.set)


def settings_rows(cells: Sequence[Cell]) -> tuple[str, list[list[str]]]:
    """(axis, [[value, settings in words], ...]) in the plan's order; the first value's in full, of the others what they change to it.

    An empty axis where no axis only names settings.
    """
    axis = next((name for cell in cells for name in cell.axes if name in NAMES_OF_SETTINGS), "")
    settings_by_value: dict[str, Mapping[str, Any]] = {}
    for cell in cells:
        if axis in cell.axes:
            settings_by_value.setdefault(str(cell.axes[axis]), {name: cell.trial.parameters.get(name) for name in sorted(cell.named)})
    if len(settings_by_value) < 2:
        return "", []
    rows = []
    first: Mapping[str, Any] = {}
    for value, settings in settings_by_value.items():
        changes = {name: setting for name, setting in settings.items() if not first or setting != first[name]}
        rows.append([value, ", ".join(f"{name} {table_text(setting)}" for name, setting in changes.items()) or "as the first"])
        first = first or settings
    return axis, rows
