"""The cells that parity references add: one for all that learn the same on a pool, computed plainly."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.spec.matrix import expand, order, seed_of, trial_count
from tests.experiments.spec.suite_helpers import Workshop, workshop

__all__ = ["workshop"]

REFERENCES = """\
suite: toys
workload: toy
fixed: {steps: 10, compile: layer}
axes:
  pool: [cpu, gpu]
  precision: [bf16, tf32]
  batch_size: [8, max]
baseline: {precision: bf16}
parity_reference: true
"""


def test_one_reference_serves_all_that_learn_the_same_on_a_pool(workshop: Workshop) -> None:
    suite = workshop.load(REFERENCES)
    cells = expand(suite)
    assert len(cells) == 10
    added = [(cell.pool, cell.device, cell.parameters["precision"], cell.parameters["compile"]) for cell in cells[8:]]
    assert added == [("cpu", "cpu", "fp32", "none"), ("gpu", "cuda", "fp32", "none")]
    assert cells[8].axes == {"pool": "cpu", "precision": "fp32", "batch_size": 8}
    assert {cell.parameters["compile"] for cell in cells[:8]} == {"layer"}


def test_a_reference_may_be_in_bf16_and_is_then_a_cell_that_is_there(workshop: Workshop) -> None:
    in_bf16 = REFERENCES.replace("parity_reference: true", "parity_reference: 3\nparity_precision: bf16")
    suite = workshop.load(in_bf16)
    cells = expand(suite)
    assert len(cells) == 8 and not any(cell.reference for cell in cells)
    assert [(cell.parameters["precision"], cell.repeats) for cell in cells[:4]] == [
        ("bf16", 3),
        ("bf16", 3),
        ("tf32", None),
        ("tf32", None),
    ]
    without = expand(workshop.load(in_bf16.replace("[bf16, tf32]", "[fp16, tf32]").replace("{precision: bf16}", "{precision: fp16}")))
    added = [(cell.pool, cell.parameters["precision"], cell.parameters["compile"], cell.repeats) for cell in without if cell.reference]
    assert added == [("cpu", "bf16", "none", 3), ("gpu", "bf16", "none", 3)]
    assert "parity_precision" in str(workshop.refused(in_bf16.replace("precision: bf16\n", "precision: fp16\n")))


def test_a_reference_in_tf32_is_the_cell_that_is_there(workshop: Workshop) -> None:
    in_tf32 = REFERENCES.replace("parity_reference: true", "parity_reference: 3\nparity_precision: tf32")
    cells = expand(workshop.load(in_tf32))
    assert [(cell.parameters["precision"], cell.repeats, cell.reference) for cell in cells[:4]] == [
        ("bf16", None, False),
        ("bf16", None, False),
        ("tf32", 3, False),
        ("tf32", 3, False),
    ] and len(cells) == 8


def test_a_reference_is_not_compiled_in_any_mode(workshop: Workshop) -> None:
    cells = expand(workshop.load(REFERENCES.replace("compile: layer", "compile: layer, compile_mode: max-autotune")))
    assert [(cell.parameters["compile"], cell.parameters["compile_mode"]) for cell in cells[7:9]] == [
        ("layer", "max-autotune"),
        ("none", "default"),
    ]


def test_no_reference_is_added_where_precision_is_set_for_all(workshop: Workshop) -> None:
    cells = expand(workshop.load(REFERENCES, sets={"precision": "bf16"}))
    assert [tuple(cell.axes.values()) for cell in cells] == [
        ("cpu", "bf16", 8),
        ("cpu", "bf16", "max"),
        ("gpu", "bf16", 8),
        ("gpu", "bf16", "max"),
    ]


def test_a_set_parameter_holds_for_references_too(workshop: Workshop) -> None:
    cells = expand(workshop.load(REFERENCES, sets={"compile": "model"}))
    assert len(cells) == 10
    assert {cell.parameters["compile"] for cell in cells} == {"model"}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [("allow_tf32", True, False), ("optimizer", "states_8bit", "foreach"), ("optimizer", "fused", "fused"), ("autocast", True, True)],
)
def test_a_reference_computes_plainly_whatever_is_set_for_all(workshop: Workshop, name: str, value: Any, kept: Any) -> None:
    cells = expand(workshop.load(REFERENCES, sets={name: value}))
    assert {cell.parameters[name] for cell in cells if cell.reference} == {kept}
    assert {cell.parameters[name] for cell in cells if not cell.reference} == {value}


def test_references_have_a_repeat_for_each_seed_and_repeats_are_seeds(workshop: Workshop) -> None:
    suite = workshop.load(REFERENCES.replace("true", "4"), sets={"seed": 7})
    assert (suite.parity_reference, suite.repeats, suite.repeats_are_seeds) == (4, 1, True)
    cells = expand(suite)
    assert [(cell.repeats, cell.reference) for cell in cells] == [(None, False)] * 8 + [(4, True)] * 2
    assert trial_count(cells, suite.repeats) == 8 + 2 * 4
    ordered = order(cells, suite.repeats)
    assert sorted(seed_of(suite, cell, repeat) for cell, repeat in ordered if cell.reference) == [7, 7, 8, 8, 9, 9, 10, 10]
    assert {seed_of(suite, cell, repeat) for cell, repeat in ordered if not cell.reference} == {7}
    there = expand(workshop.load(REFERENCES.replace("[bf16, tf32]", "[bf16, fp32]") + "repeats: 2\n"))
    assert [cell.repeats for cell in there if cell.parameters["batch_size"] == 8] == [None, 3, None, 3], "what is there is raised to it"
    enough = expand(workshop.load(REFERENCES.replace("[bf16, tf32]", "[bf16, fp32]") + "repeats: 5\n"))
    assert {cell.repeats for cell in enough} == {None}


def test_where_all_cells_compute_alike_there_is_nothing_to_prove(workshop: Workshop) -> None:
    text = "suite: toys\nworkload: toy\naxes: {pool: [cpu], precision: [bf16], dataloader_workers: [0, 1]}\nparity_reference: 3\n"
    assert not any(cell.reference or cell.repeats for cell in expand(workshop.load(text + "baseline: {dataloader_workers: 0}\n")))


def test_an_axis_of_seeds_is_its_own(workshop: Workshop) -> None:
    suite = workshop.load(REFERENCES.replace("  precision:", "  seed: [3, 4, 5]\n  precision:").replace("[cpu, gpu]", "[cpu]"))
    added = [cell for cell in expand(suite) if cell.reference]
    assert not suite.repeats_are_seeds and [(cell.parameters["seed"], cell.repeats) for cell in added] == [(3, 1), (4, 1), (5, 1)]
    assert seed_of(suite, added[1], 2) == 4


@pytest.mark.parametrize(
    ("metric", "seeds"),
    [("eval_loss_after", [5, 6, 7]), ("loss_spikes", [5, 6, 7]), ("throughput", [5, 5, 5]), ("peak_memory_bytes", [5, 5, 5])],
)
def test_a_table_of_what_is_learnt_has_a_seed_for_each_repeat(workshop: Workshop, metric: str, seeds: list[int]) -> None:
    """Repeats of one seed would agree in a loss to its last digits, and call any difference decided."""
    text = "suite: toys\nworkload: toy\naxes: {pool: [cpu], precision: [bf16]}\nrepeats: 3\n"
    suite = workshop.load(f"{text}report: {{rows: [pool], columns: precision, metric: {metric}}}\n", sets={"seed": 5})
    assert suite.parity_reference == 0
    assert [seed_of(suite, cell, repeat) for cell, repeat in order(expand(suite), suite.repeats)] == seeds


def test_a_reference_computes_plainly(workshop: Workshop) -> None:
    plainly_not = "{parallel: fsdp2, fsdp_reduce: bf16, fsdp_compute: bf16, autocast: false, allow_tf32: true}"
    suite = workshop.load(REFERENCES + f"conditions: [{{when: {{pool: gpu, precision: bf16}}, set: {plainly_not}}}]\n")
    added = next(cell.parameters for cell in expand(suite) if cell.reference and cell.parameters["parallel"] == "fsdp2")
    assert (added["fsdp_reduce"], added["fsdp_compute"], added["precision"]) == ("fp32", "fp32", "fp32")
    assert (added["autocast"], added["allow_tf32"]) == (True, False)
    suite = workshop.load(REFERENCES + "conditions: [{when: {pool: gpu, precision: bf16}, set: {block_weights: bf16}}]\n")
    assert {cell.parameters["block_weights"] for cell in expand(suite) if cell.reference} == {"fp32"}


def test_the_number_of_seeds_is_none_or_enough(workshop: Workshop) -> None:
    for written, seeds in (("true", 3), ("false", 0), ("0", 0), ("3", 3), ("20", 20)):
        assert workshop.load(REFERENCES.replace("true", written)).parity_reference == seeds
    for refused in ("1", "2", "21", "-1", "yes please"):
        assert "parity_reference" in str(workshop.refused(REFERENCES.replace("true", refused)))
