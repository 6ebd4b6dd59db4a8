"""Expansion: the same suite always gives the same cells, in an order that can be foretold."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from pydantic import StrictBool, StrictInt

from experiments import workloads
from experiments.config.scalar_text import yaml_text
from experiments.parameters import TrainingParameters
from experiments.spec.matrix import (
    CellError,
    PlannedCell,
    _product,
    _test,
    expand,
    expansion,
    order,
    product_size,
    same,
    show,
)
from experiments.spec.schema import Suite
from tests.experiments.spec.suite_helpers import Workshop, workshop

__all__ = ["workshop"]

HEAD = "suite: toys\nworkload: toy\n"


def axes_of(suite: Suite) -> list[tuple[Any, ...]]:
    return [tuple(cell.axes.values()) for cell in expand(suite)]


def test_product_in_the_suites_order_with_complete_parameters(workshop: Workshop) -> None:
    suite = workshop.load(HEAD + "fixed: {steps: 10, learning_rate: 1}\naxes: {precision: [bf16, fp32], pool: [gpu, cpu], seed: [3, 1]}\n")
    assert axes_of(suite) == list(itertools.product(["bf16", "fp32"], ["gpu", "cpu"], [3, 1]))
    cell = expand(suite)[1]
    assert (cell.pool, cell.device, list(cell.axes)) == ("gpu", "cuda", ["precision", "pool", "seed"])
    assert (cell.parameters["precision"], cell.parameters["seed"], cell.parameters["steps"], cell.parameters["model"]) == (
        "bf16",
        1,
        10,
        "tiny",
    )
    assert "pool" not in cell.parameters and "device" not in cell.parameters
    assert cell.parameters["learning_rate"] == 1.0 and isinstance(cell.parameters["learning_rate"], float)  # as the workload reads it


def test_linked_axes_are_zipped(workshop: Workshop) -> None:
    suite = workshop.load(
        HEAD + "axes: {pool: [cpu]}\nlinked:\n  - {batch_size: [8, 16], learning_rate: [1e-3, 2e-3]}\n  - {seed: [1, 2], threads: [1, 2]}\n"
    )
    pairs = [(8, 1e-3), (16, 2e-3)]
    assert axes_of(suite) == [("cpu", *pair, n, n) for pair in pairs for n in (1, 2)]
    assert list(expand(suite)[0].axes) == ["pool", "batch_size", "learning_rate", "seed", "threads"]


def test_conditions_apply_in_order_and_see_the_device(workshop: Workshop) -> None:
    text = """
axes: {pool: [cpu, gpu], precision: [fp32, bf16]}
conditions:
  - {when: {device: cuda}, set: {batch_size: 48, seed: 1}}
  - {when: {pool: [gpu], precision: bf16}, set: {batch_size: 32}}
  - {when: {batch_size: 32}, set: {threads: 3}}
"""
    cells = expand(workshop.load(HEAD + text))
    found = [tuple(cell.parameters[name] for name in ("batch_size", "seed", "threads")) for cell in cells]
    assert found == [(8, 0, None), (8, 0, None), (48, 1, None), (32, 1, 3)]
    assert all(list(cell.axes) == ["pool", "precision"] for cell in cells)  # what a condition sets is no axis


def test_excludes_see_axes_device_and_parameters(workshop: Workshop) -> None:
    text = """
axes: {pool: [cpu, gpu], precision: [fp32, bf16, fp16], seed: [0, 1]}
conditions: [{when: {pool: gpu, seed: 1}, set: {batch_size: 48}}]
exclude:
  - {device: cpu, precision: [bf16, fp16]}
  - {batch_size: 48, precision: fp16}
"""
    everything = set(itertools.product(["cpu", "gpu"], ["fp32", "bf16", "fp16"], [0, 1]))
    left_out = {("cpu", p, s) for p in ("bf16", "fp16") for s in (0, 1)} | {("gpu", "fp16", 1)}
    assert set(axes_of(workshop.load(HEAD + text))) == everything - left_out


def test_includes_cross_what_they_do_not_name(workshop: Workshop) -> None:
    text = """
axes: {pool: [cpu, gpu], seed: [0, 1]}
exclude: [{pool: gpu, seed: 1}]
include:
  - {seed: 7}
  - {pool: gpu, seed: 1}
"""
    suite = workshop.load(HEAD + text)
    assert axes_of(suite) == [("cpu", 0), ("cpu", 1), ("gpu", 0), ("cpu", 7), ("gpu", 7), ("gpu", 1)]


def test_an_include_makes_its_parameter_an_axis_and_wins_over_conditions(workshop: Workshop) -> None:
    text = """
axes: {pool: [cpu, gpu]}
conditions: [{when: {pool: gpu}, set: {batch_size: 48}}]
include: [{batch_size: 64}, {batch_size: 48}]
"""
    cells = expand(workshop.load(HEAD + text))
    assert [cell.axes for cell in cells] == [
        {"pool": "cpu", "batch_size": 8},
        {"pool": "gpu", "batch_size": 48},
        {"pool": "cpu", "batch_size": 64},
        {"pool": "gpu", "batch_size": 64},
        {"pool": "cpu", "batch_size": 48},  # gpu with 48 is there already: once
    ]
    assert all(cell.axes["batch_size"] == cell.parameters["batch_size"] for cell in cells)


def test_an_include_may_name_a_row_of_linked_axes_or_a_new_one(workshop: Workshop) -> None:
    text = HEAD + "axes: {pool: [cpu], steps: [5]}\nlinked: [{seed: [1, 2], threads: [3, 4]}]\n"
    assert axes_of(workshop.load(text + "include: [{seed: 2, steps: 9}]\n"))[-1] == ("cpu", 9, 2, 4)
    assert axes_of(workshop.load(text + "include: [{seed: 8, threads: 9}]\n"))[-1] == ("cpu", 5, 8, 9)
    error = workshop.refused(text + "include: [{seed: 8}]\n")
    assert error.key == "include[0]" and "only a part of linked axes" in error.problem and "name all of seed, threads" in error.hint


def test_set_wins_over_everything(workshop: Workshop) -> None:
    text = "axes: {pool: [cpu, gpu]}\nconditions: [{when: {pool: gpu}, set: {batch_size: 48}}]\ninclude: [{batch_size: 64}]\n"
    cells = expand(workshop.load(HEAD + text, sets={"batch_size": 4}))
    assert [(cell.pool, cell.parameters["batch_size"]) for cell in cells] == [("cpu", 4), ("gpu", 4)]


def test_true_is_not_one(workshop: Workshop) -> None:
    text = HEAD + "axes: {pool: [cpu], pin_memory: [true, false], seed: [0, 1]}\nexclude: [{pin_memory: true, seed: 1}]\n"
    assert axes_of(workshop.load(text)) == [("cpu", True, 0), ("cpu", False, 0), ("cpu", False, 1)]
    assert workshop.refused(HEAD + "axes: {pool: [cpu], pin_memory: [1]}\n").key == "axes.pin_memory[0]"


def test_a_refused_combination_can_be_excluded(workshop: Workshop) -> None:
    text = HEAD + "axes: {pool: [cpu], batch_size: [4, 6], shards: [2, 3]}\n"
    assert "batch_size=4 shards=3" in str(workshop.refused(text))
    suite = workshop.load(text + "exclude: [{batch_size: 4, shards: 3}]\n")
    assert len(expand(suite)) == 3
    with pytest.raises(CellError, match=r"pool=cpu batch_size=4 shards=3: .*no multiple"):
        expand(suite.model_copy(update={"exclude": []}))


def test_rounds_run_forward_and_backward() -> None:
    cells = [PlannedCell("cpu", "cpu", {"seed": seed}, {"seed": seed}) for seed in "ABC"]
    found = [f"{cell.axes['seed']}{repeat}" for cell, repeat in order(cells, 3)]
    assert found == ["A1", "B1", "C1", "C2", "B2", "A2", "A3", "B3", "C3"]
    assert order([], 3) == []


@pytest.mark.parametrize("seed", range(12))
def test_expansion_against_a_plain_statement_of_the_rules(workshop: Workshop, seed: int) -> None:
    """Random suites: the cells are those a brute-force reading gives, each once, the same every time, whatever the file's key order."""
    rng = random.Random(seed)
    options = {
        "pool": ["cpu", "gpu"],
        "precision": ["fp32", "tf32", "bf16"],
        "seed": [0, 1, 2],
        "threads": [None, 1, 2],
        "evaluate": [True, False],
    }
    names = ["pool", *rng.sample(list(options)[1:], rng.randint(1, 4))]
    axes = {name: rng.sample(options[name], rng.randint(1, len(options[name]))) for name in names}
    product = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]

    def some() -> dict[str, Any]:
        cell = rng.choice(product)
        return {name: cell[name] for name in rng.sample(names, rng.randint(1, len(names)))}

    excludes = [some() for _ in range(rng.randint(0, 3))]
    while all(any(rule.items() <= cell.items() for rule in excludes) for cell in product):  # one that leaves no cell is refused
        excludes.pop()
    conditions = [(some(), rng.randint(2, 50)) for _ in range(rng.randint(0, 3))]
    expected = []
    for cell in product:
        steps = 100
        for when, value in conditions:
            steps = value if when.items() <= cell.items() else steps
        if not any(rule.items() <= cell.items() for rule in excludes):
            expected.append((cell, steps))
    parts = [
        f"axes: {flow(axes)}",
        f"exclude: {flow(excludes)}",
        f"conditions: {flow([{'when': when, 'set': {'steps': value}} for when, value in conditions])}",
    ]
    rng.shuffle(parts)
    suite = workshop.load(HEAD + "\n".join(parts) + "\n")
    cells = expand(suite)
    assert [(cell.axes, cell.parameters["steps"]) for cell in cells] == expected
    assert expand(suite) == cells
    assert expand(Suite.model_validate_json(suite.model_dump_json())) == cells


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return yaml_text(value)


def test_missing_fp32_references_of_loss_parity_are_planned(workshop: Workshop) -> None:
    text = """\
suite: toys
workload: toy
fixed: {steps: 10, compile: layer}
axes:
  pool: [cpu, gpu]
  precision: [fp32, bf16]
  batch_size: [8, 16, max]
  dataloader_workers: [0, 1]
exclude:
  - {precision: fp32, batch_size: [16, max]}
  - {pool: cpu, batch_size: [16, max]}
baseline: {dataloader_workers: 0}
parity_reference: true
"""
    suite = workshop.load(text)
    cells = expand(suite)
    before = len(expand(suite.model_copy(update={"parity_reference": 0})))
    added = cells[before:]
    told = [(cell.pool, cell.parameters["precision"], cell.parameters["batch_size"], cell.parameters["compile"]) for cell in added]
    assert told == [("gpu", "fp32", 16, "none")], "8 has one, what max will be is not known, and both worker counts share one"
    assert added[0].axes == {"pool": "gpu", "precision": "fp32", "batch_size": 16, "dataloader_workers": 0}
    bf16 = workshop.load(text, only={"precision": ["bf16"]})
    assert {cell.parameters["precision"] for cell in expand(bf16)} == {"bf16"}, "--only is obeyed"
    forced = workshop.load(text.replace("parity_reference", "repeats: 1\nparity_reference"), sets={"seed": 3})
    assert {cell.parameters["seed"] for cell in expand(forced)} == {3}


def test_what_is_equal_but_of_another_type_is_not_the_same() -> None:
    assert same(1, 1) and same("a", "a") and same(None, None) and same(True, True)
    assert not same(True, 1) and not same(1, 1.0) and not same(0, False) and not same(1, 2) and not same(None, 0)


def test_a_rule_for_one_does_not_match_true() -> None:
    assert _test({"flag": 1})({"flag": 1}) and _test({"flag": [0, True]})({"flag": True})
    assert not _test({"flag": 1})({"flag": True}) and not _test({"flag": [0, True]})({"flag": 1})
    assert not _test({"flag": 1, "seed": 2})({"flag": 1})


def test_an_include_with_one_does_not_take_the_linked_row_with_true() -> None:
    """A row is found by value and type: `_product` reads a suite's values as they are, before a workload has checked them."""
    suite = Suite.model_construct(axes={"pool": ["cpu"]}, linked=[{"flag": [True, 1], "seed": [3, 4]}])
    rows = [list(_product(suite, {"flag": value})) for value in (1, True)]
    assert rows == [[{"pool": "cpu", "flag": 1, "seed": 4}], [{"pool": "cpu", "flag": True, "seed": 3}]]
    assert [[type(row["flag"]) for row in found] for found in rows] == [[int], [bool]]


def test_an_include_adds_the_cell_that_is_equal_but_of_another_type(workshop: Workshop) -> None:
    class Either(TrainingParameters):
        flag: StrictBool | StrictInt = 1

    loaded = workshop.load(HEAD + "axes: {pool: [cpu]}\n")
    suite = loaded.model_copy(update={"axes": {"pool": ["cpu"], "flag": [1]}, "include": [{"flag": True}, {"flag": 1}]})
    found = expansion(suite, Either)
    assert [(type(cell.axes["flag"]), cell.axes["flag"]) for cell in found.cells] == [(int, 1), (bool, True)]
    assert found.includes == [1, 0], "1 is there already"


def test_the_size_of_a_product_is_known_without_it() -> None:
    assert product_size({}, []) == 1
    assert product_size({"a": [1, 2, 3], "b": [1, 2]}, []) == 6
    assert product_size({"a": [1, 2, 3]}, [{"b": [1, 2], "c": [1, 2]}, {"d": range(5)}]) == 30
    assert product_size({"a": [1]}, [{"b": [1], "c": [1, 2]}]) == 2, "lists that differ are counted as the longest, and refused elsewhere"
    assert product_size({"a": [1]}, [{}]) == product_size({"a": []}, []) == 0


def test_each_rule_is_told_how_many_cells_it_matched(workshop: Workshop) -> None:
    text = """
axes: {pool: [cpu, gpu], seed: [0, 1, 2]}
conditions:
  - {when: {pool: gpu}, set: {threads: 3}}
  - {when: {seed: 0}, set: {threads: 4}}
exclude:
  - {seed: 2}
  - {pool: gpu, seed: [1, 2]}
include:
  - {seed: 7}
  - {pool: gpu, seed: 2}
"""
    suite = workshop.load(HEAD + text)
    suite = suite.model_copy(update={"include": [*suite.include, {"pool": "cpu", "seed": 7}]})  # a file that says so is refused
    found = expansion(suite, workloads.load("toy").Parameters)
    assert found.conditions == [5, 2]  # of the product 3 and 2; of what the includes add: gpu with 7, gpu with 2
    assert found.excludes == [2, 2], "a cell that two rules drop counts for both"
    assert found.includes == [2, 1, 0], "what is there already is not added"
    assert [tuple(cell.axes.values()) for cell in found.cells] == [
        ("cpu", 0),
        ("cpu", 1),
        ("gpu", 0),
        ("cpu", 7),
        ("gpu", 7),
        ("gpu", 2),
    ]
    assert [cell.parameters["threads"] for cell in found.cells] == [4, None, 4, None, 3, 3], "the later condition wins"


def test_only_drops_cells_of_includes_too_and_counts_them(workshop: Workshop) -> None:
    text = HEAD + "axes: {pool: [cpu, gpu], seed: [0, 1]}\ninclude: [{seed: 7}]\n"
    suite = workshop.load(text, only={"pool": ["gpu"]})
    assert axes_of(suite) == [("gpu", 0), ("gpu", 1), ("gpu", 7)]
    assert expansion(suite, workloads.load("toy").Parameters).includes == [2], "a rule that --only hides still does something"


def test_a_cell_is_shown_as_only_takes_it() -> None:
    assert show({"pool": "cpu", "precision": "bf16", "threads": None}) == "pool=cpu precision=bf16 threads=None"
    assert show({}) == ""
