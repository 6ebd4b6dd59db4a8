"""Expansion: the same suite always gives the same cells, in an order that can be foretold."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from experiments.spec.matrix import Cell, CellError, expand, order
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


def test_order_is_interleaved() -> None:
    cells = [Cell("cpu", "cpu", {"seed": seed}, {"seed": seed}) for seed in "ABC"]
    assert [(cell.axes["seed"], repeat) for cell, repeat in order(cells, 3)] == [(seed, repeat) for repeat in (1, 2, 3) for seed in "ABC"]
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
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


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
    added = cells[len(expand(suite.model_copy(update={"parity_reference": False}))) :]
    told = [(cell.pool, cell.parameters["precision"], cell.parameters["batch_size"], cell.parameters["compile"]) for cell in added]
    assert told == [("gpu", "fp32", 16, "none")], "8 has one, what max will be is not known, and both worker counts share one"
    assert added[0].axes == {"pool": "gpu", "precision": "fp32", "batch_size": 16, "dataloader_workers": 0}
    bf16 = workshop.load(text, only={"precision": ["bf16"]})
    assert {cell.parameters["precision"] for cell in expand(bf16)} == {"bf16"}, "--only is obeyed"
    forced = workshop.load(text.replace("parity_reference", "repeats: 1\nparity_reference"), sets={"seed": 3})
    assert {cell.parameters["seed"] for cell in expand(forced)} == {3}
    refused = workshop.refused(text.replace("  precision: [fp32, bf16]\n", "").replace("precision: fp32, ", ""))
    assert "parity_reference" in str(refused) and "needs the axis precision" in str(refused)
