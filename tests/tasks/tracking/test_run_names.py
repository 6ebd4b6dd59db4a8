"""Names of trials' runs in MLflow begin with what tells a cell from the sweep's others."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from experiments.trial import Trial
from tasks.tracking.run_names import run_name, telling_axes
from tests.tasks.plan_support import make_plan, make_trial


def trials(*axes: dict[str, Any], repeats: int = 1, **changes: Any) -> list[Trial]:
    both = product(range(1, repeats + 1), enumerate(axes))
    return [
        make_trial(number, axes={"pool": "cpu", **values}, repeat=repeat, parameters={"cell": place}, cell=str(place), **changes)
        for number, (repeat, (place, values)) in enumerate(both, 1)
    ]


def names(made: list[Trial], **fields: Any) -> list[str]:
    axes = telling_axes(make_plan(made, **fields))
    return [run_name(trial, 1, axes) for trial in made]


def test_a_name_begins_with_the_axis_that_parts_the_most_cells() -> None:
    grid = [
        {"model": model, "precision": precision, "dataloader_workers": count}
        for model, precision, count in product(("tiny", "mini"), ("fp32", "bf16"), (0, 1, 2))
    ]
    found = names(trials(*grid, repeats=2))
    assert found[:3] == ["MP-0 · tiny · fp32 · #1", "MP-1 · tiny · fp32 · #1", "MP-2 · tiny · fp32 · #1"]
    assert found[-1] == "MP-2 · mini · bf16 · #2"
    assert len(set(found)) == 24


def test_what_goes_with_another_axis_is_left_out() -> None:
    """A long suite's cells began with the same words, beyond which MLflow cut them."""
    alike = {"padding": "removed", "block_weights": "bf16", "compile": "layer"}
    rungs = [("fp32", "stock"), ("bf16", "stock"), ("fp8", "fused")]
    assert names(trials(*({**alike, "kernels": kernels, "precision": precision} for precision, kernels in rungs))) == [
        "fp32 · #1",
        "bf16 · #1",
        "fp8 · #1",
    ]


def test_an_axis_that_only_some_cells_have_tells_them_apart() -> None:
    """As in a night, whose cells are of several suites."""
    assert names(trials({"suite": "a", "steps": 5}, {"suite": "b"}, {"suite": "b", "steps": 5})) == [
        "a · steps 5 · #1",
        "b · #1",
        "b · steps 5 · #1",
    ]


def test_where_no_axis_differs_it_is_the_whole_name() -> None:
    assert names(trials({"precision": "fp32"}, repeats=2)) == ["cpu · fp32 · #1", "cpu · fp32 · #2"]
    assert telling_axes(make_plan([])) == []


def test_cells_that_time_cut_off_count_so_that_names_stay() -> None:
    made = trials({"precision": "fp32"}, {"precision": "bf16"})
    assert names(made[:1], cut=made[1:]) == ["fp32 · #1"]


def test_a_reference_and_a_later_attempt_are_named() -> None:
    trial = make_trial(1, parameters={"precision": "fp32"}, reference=True)
    assert run_name(trial, 2, ["number"]) == "number 1 · reference fp32 · #1 · attempt 2"


@pytest.mark.parametrize("order", [1, -1])
def test_of_axes_that_part_as_many_the_suites_first_comes_first(order: int) -> None:
    axes = [("model", ("a", "b")), ("precision", ("fp32", "bf16"))][::order]
    grid = [dict(zip((name for name, _ in axes), values, strict=True)) for values in product(*(values for _, values in axes))]
    assert telling_axes(make_plan(trials(*grid))) == [name for name, _ in axes]


def test_an_axis_whose_value_is_none_is_not_one_that_a_cell_lacks() -> None:
    made = trials({"suite": "a", "measure_s": None}, {"suite": "a"}, {"suite": "b"})
    assert telling_axes(make_plan(made)) == ["suite", "measure_s"]
    assert names(made) == ["a · measure_s none · #1", "a · #1", "b · #1"]
