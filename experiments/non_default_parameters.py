"""A cell's parameters whose value is not their default: they identify it where code changes, see `non_default`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.parameters import TrainingParameters


def default_values(schema: type[TrainingParameters]) -> dict[str, Any]:
    """The defaults of a workload's parameters, as JSON has them. A parameter that must be given has none."""
    return schema.model_construct().model_dump(mode="json")


def non_default(parameters: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that differ from `defaults`, and those that have no default.

    What a cell chose stays the same when its schema gains a parameter. Two cells are told apart only by the same defaults: one with an old
    default, by the old ones, and one with the new default, by the new ones, both chose nothing.
    """
    return {name: value for name, value in parameters.items() if name not in defaults or defaults[name] != value}
