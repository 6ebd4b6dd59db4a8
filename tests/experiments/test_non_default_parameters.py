"""Parameters that are not at their defaults: by them a cell is known over the nights and in the store of spreads."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.non_default_parameters import default_values, non_default
from experiments.parameters import TrainingParameters


class Now(TrainingParameters):
    width: int
    depth: int | None = None
    rate: float = 0.5


class Later(Now):
    newer: tuple[int, ...] = (3, 4)


def test_defaults_are_as_json_has_them_and_what_must_be_given_has_none() -> None:
    values = default_values(Later)
    assert (values["depth"], values["rate"], values["newer"], values["steps"]) == (None, 0.5, [3, 4], 100)
    assert "width" not in values


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"width": 8, "depth": None, "rate": 0.5, "steps": 100}, {"width": 8}),
        ({"width": 8, "depth": 2, "rate": 0.25, "steps": 50}, {"width": 8, "depth": 2, "rate": 0.25, "steps": 50}),
        ({"of_no_schema": 1}, {"of_no_schema": 1}),
    ],
    ids=["at their defaults", "of other values", "unknown"],
)
def test_what_was_chosen_stays_the_same_when_a_schema_gains_a_parameter(parameters: dict[str, Any], expected: dict[str, Any]) -> None:
    assert non_default(parameters, default_values(Now)) == expected
    assert non_default({**parameters, "newer": [3, 4]}, default_values(Later)) == expected
    assert non_default({**parameters, "newer": [3]}, default_values(Later)) == {**expected, "newer": [3]}
