"""Which cells are a reference of loss parity, which of several counts, and what is said where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.analysis.trial_row import TrialRow
from tests.tasks.analysis.parity_support import BF16, FP8, NEEDS, THREE, cell, gate, status
from tests.tasks.cell_support import made, row, settings, workers


def test_fp32_is_the_reference_else_bf16_with_enough_seeds_and_it_is_named() -> None:
    cells = gate(cell("base", **BF16), cell("fp8", **FP8))
    assert cells["base"].parity is None and cells["fp8"].claimed and "against bf16 over 120 steps" in str(cells["fp8"].parity_note)
    cells = gate(cell("base", **BF16), cell("fp8", **FP8), cell("full", precision="fp32", kernels="stock"))
    assert "against bf16" in str(cells["fp8"].parity_note), "one seed of fp32 is no reference"
    assert cells["base"].parity_note == f"unproven against fp32: {NEEDS}", "nor is bf16 one for itself where there is fp32"
    cells = gate(cell("base", **BF16), cell("fp8", **FP8), cell("full", precision="fp32", kernels="stock", seeds=THREE))
    assert all("against fp32" in str(cells[name].parity_note) for name in ("base", "fp8")) and cells["full"].claimed


def test_a_reference_computes_plainly() -> None:
    quantised: dict[str, Any] = {"linear": "switchback", "allow_tf32": False, "seeds": THREE}
    cells = gate(cell("base", precision="fp32", **quantised), cell("other", precision="bf16", **quantised))
    none = "unproven: no fp32, tf32 or bf16 reference in the sweep; a cell in"
    assert cells["other"].parity_note == f"{none} fp32 would be one with linear plain"
    loose: dict[str, Any] = {"allow_tf32": True, "seeds": THREE}
    cells = gate(cell("base", precision="fp32", **loose), cell("other", precision="fp16", **loose))
    assert cells["other"].parity_note == f"{none} fp32 would be one with allow_tf32 false"
    cells = gate(cell("base", precision="bf16", **loose), cell("other", precision="fp16", **loose))
    assert cells["other"].claimed, "beside bf16 the few fp32 products do not matter"


def test_what_the_nearest_cell_lacks_to_be_a_reference_is_said() -> None:
    sharded: dict[str, Any] = {"autocast": False, "fsdp_compute": "bf16", "optimizer": "states_bf16", "seeds": THREE}
    cells = gate(cell("base", precision="bf16", **sharded), cell("fp8", precision="fp8", **sharded))
    lacks = "autocast true and fsdp_compute fp32 and optimizer foreach"
    assert cells["fp8"].parity_note == f"unproven: no fp32, tf32 or bf16 reference in the sweep; a cell in bf16 would be one with {lacks}"


def test_tf32_is_a_reference_where_no_fp32_is_and_before_bf16() -> None:
    """TF32 rounds products' factors to 10 bits where bf16 has 7."""
    tf32: dict[str, Any] = {"precision": "tf32", "kernels": "stock"}
    cells = gate(cell("base", **tf32, seeds=THREE), cell("bf16", **BF16), cell("fp8", **FP8))
    assert cells["base"].parity is None and cells["base"].claimed
    assert all(cells[name].claimed and "against tf32 over 120 steps" in str(cells[name].parity_note) for name in ("bf16", "fp8"))
    cells = gate(cell("base", **tf32), cell("bf16", **BF16), cell("fp8", **FP8))
    assert "against bf16" in str(cells["fp8"].parity_note), "one seed of tf32 is no reference"
    assert cells["bf16"].parity_note == f"unproven against tf32: {NEEDS.replace('fp32', 'tf32')}" and not cells["bf16"].claimed
    cells = gate(cell("base", **tf32, seeds=THREE), cell("full", precision="fp32", kernels="stock", seeds=THREE), cell("fp8", **FP8))
    assert "against fp32" in str(cells["fp8"].parity_note) and "against fp32" in str(cells["base"].parity_note)
    assert gate(cell("base", precision="tf32"), cell("full", precision="fp32"))["full"].claimed, "fp32 has nothing to prove to tf32"


def test_without_a_baseline_no_ranked_cell_is_its_own_reference() -> None:
    """As of adapters on other layers than the baseline's: the compiled cell was called fastest, and held against nothing."""
    compiled: dict[str, Any] = {**BF16, "compile": "layer"}
    cells = gate(cell("compiled", 2.02, **compiled), cell("plain", **BF16), baseline="none of these")
    assert cells["plain"].reference == "bf16" and cells["plain"].parity is None
    assert status(cells["compiled"]) == "struck" and not cells["compiled"].may_lead(cells["plain"]), "1 % is not within 0.5 %"
    cells = gate(cell("compiled", **compiled), cell("plain", **BF16), baseline="none of these")
    assert status(cells["compiled"]) == "proven" and cells["compiled"].may_lead(cells["plain"])


def test_without_a_baseline_a_reference_is_meant() -> None:
    none = settings(baseline={"precision": "gone"}, rows=("precision",))
    [alone] = made([row(workers(0, precision="bf16"), losses=[2.0] * 50)], none)
    assert alone.baseline is None and alone.parity is None and alone.claimed, "bf16 by itself is a reference"
    [low] = made([row(workers(0, precision="fp16"), losses=[2.0] * 50)], none)
    assert not low.claimed and low.parity_note == "unproven: no fp32, tf32 or bf16 reference in the sweep"
    [plain] = made([row(workers(0), losses=[2.0] * 50)])
    assert plain.parity is None and plain.claimed, "no precision, nothing to prove"
    [failed] = made([row(workers(0, precision="bf16"), None, outcome=Outcome.CRASHED)])
    assert failed.parity_note is None


def test_the_nearest_cell_is_named_by_what_differs_in_what_it_learns() -> None:
    base = cell("base", precision="fp32", seeds=THREE)
    cells = gate(
        base,
        cell("longer", precision="bf16", learning_rate=1.0, compile="layer"),
        cell("big reference", precision="fp32", batch_size=64, outcome=Outcome.DOES_NOT_FIT),
        cell("big", precision="bf16", batch_size=64),
    )
    assert cells["longer"].parity_note == "unproven: the nearest fp32, tf32 or bf16 cell differs in learning_rate, so it is no reference"
    assert cells["big"].parity_note == "unproven: the reference ended without a curve (does not fit)"


def test_why_there_is_no_reference_is_said_of_those_that_could_be_one() -> None:
    def note(*others: list[TrialRow], precision: str = "fp8", baseline: str = "fp16") -> str:
        base = cell("base", precision=baseline, seeds=THREE)
        return str(gate(base, cell("low", precision=precision, seeds=THREE), *others)["low"].parity_note)

    fp32, bf16 = (cell(name, precision=name, outcome=outcome) for name, outcome in (("fp32", Outcome.HANG), ("bf16", Outcome.DOES_NOT_FIT)))
    assert note(fp32, bf16) == "unproven: the reference ended without a curve (does not fit, hang)"
    other_rate = cell("far", precision="fp32", learning_rate=1.0, batch_size=64, outcome=Outcome.CRASHED)
    assert note(other_rate, fp32) == "unproven: the reference ended without a curve (hang)", "the nearest, wherever it stands"
    nearer = cell("near", precision="fp32", learning_rate=1.0, seeds=THREE)
    assert note(other_rate, nearer) == "unproven: the nearest fp32, tf32 or bf16 cell differs in learning_rate, so it is no reference"
    assert note(other_rate) == (
        "unproven: the nearest fp32, tf32 or bf16 cell differs in batch_size and learning_rate, so it is no reference"
    )
    assert note().startswith("unproven: no fp32, tf32 or bf16 reference in the sweep")
    base = cell("base", precision="fp32", learning_rate=1.0, compile="layer", seeds=THREE)
    own = gate(base, cell("low", precision="fp32", seeds=THREE), cell("bf16", precision="bf16", seeds=THREE))["low"]
    assert own.parity_note == "unproven: no fp32, tf32 or bf16 reference computes otherwise"


def test_the_largest_batch_is_what_it_came_to() -> None:
    def found(came_to: int) -> Cell:
        base = cell("base", precision="fp32", batch_size=24, seeds=THREE)
        return gate(base, cell("max", precision="bf16", batch_size="max", seeds=THREE, result_summary={"batch_size": came_to}))["max"]

    assert status(found(24)) == "proven"
    assert found(32).parity_note == "unproven: the nearest fp32, tf32 or bf16 cell differs in batch_size, so it is no reference"


def test_a_cell_with_more_seeds_than_its_baseline_of_equal_precision_is_no_reference_to_itself() -> None:
    cells = gate(cell("base", precision="fp32", compile="none"), cell("other", precision="fp32", compile="layer", seeds=THREE))
    assert status(cells["other"]) == "unproven" and not cells["other"].claimed and not cells["other"].reference


def placed(rows: list[TrialRow], field: str, value: str) -> list[TrialRow]:
    """The rows, of trials of another pool, environment or commit."""
    return [replace(one, trial=one.trial.model_copy(update={field: value})) for one in rows]


@pytest.mark.parametrize("field", ["pool", "environment", "commit"])
def test_of_equal_references_that_of_the_baselines_place_counts(field: str) -> None:
    """Their losses are 5 % apart, as of another library version."""
    full: dict[str, Any] = {"precision": "fp32", "seeds": THREE}
    here, there = placed(cell("here", **full), field, "a"), placed(cell("there", 2.1, **full), field, "b")
    low = placed(cell("low", 2.1, precision="bf16", seeds=THREE), field, "b")
    assert status(gate(here, there, low, baseline="there")["low"]) == "proven"
    assert status(gate(here, there, low, baseline="here")["low"]) == "struck", "its own place is not asked for"
    assert status(gate(here, there, low, baseline="none")["low"]) == "proven", "without a baseline it is"


def test_of_equal_references_what_computes_as_the_baseline_counts_then_what_is_not_compiled() -> None:
    full: dict[str, Any] = {"precision": "fp32", "seeds": THREE}
    first = cell("eager", 2.1, attention="eager", compile="none", **full)
    low = cell("low", precision="bf16", attention="sdpa", compile="none", seeds=THREE)
    assert status(gate(first, cell("base", attention="sdpa", compile="none", **full), low)["low"]) == "proven"
    compiled = cell("compiled", 2.1, attention="sdpa", compile="layer", **full)
    half = cell("base", precision="fp16", attention="sdpa", compile="none", seeds=THREE)
    assert status(gate(compiled, cell("eager", attention="eager", compile="none", **full), half, low)["low"]) == "proven"


def test_what_is_less_exact_is_no_reference_however_many_seeds_it_has() -> None:
    cells = gate(cell("base", **BF16), cell("full", precision="fp32", kernels="stock"))
    assert (cells["full"].parity, cells["full"].reference) == (None, "fp32")


def test_one_seed_is_enough_for_a_reference_that_does_not_train() -> None:
    latency = {"latency_p50_s": 0.1}
    cells = gate(
        cell("base", precision="fp32", kernels="stock", summary=latency),
        cell("bf16", **BF16, summary=latency),
        cell("fp8", **FP8, summary=latency),
    )
    assert "against fp32 over 120 steps, the same batches" in str(cells["fp8"].parity_note)


def test_a_cell_that_measured_nothing_does_not_make_its_fellows_a_training() -> None:
    """They compute alike, so they are one arm; of the one that crashed it is not known that it does not train."""
    latency = {"latency_p50_s": 0.1}
    cells = gate(
        cell("base", precision="fp32", kernels="stock", summary=latency),
        cell("fp8", **FP8, summary=latency),
        cell("loaded", **FP8, dataloader_workers=4, outcome=Outcome.CRASHED),
    )
    assert (cells["fp8"].trains, cells["loaded"].trains) == (False, True)
    assert "against fp32 over 120 steps, the same batches" in str(cells["fp8"].parity_note)


def test_a_reference_may_have_compiled_anew_what_its_cell_compiles() -> None:
    """Early references have `compile_cache` as their cell had, and compile nothing."""
    fresh: dict[str, Any] = {"compile_cache": "fresh", "seeds": THREE}
    cells = gate(cell("base", precision="fp32", compile="none", **fresh), cell("low", precision="bf16", compile="layer", **fresh))
    assert cells["base"].reference == "fp32" and status(cells["low"]) == "proven"


def test_a_parameter_that_is_not_set_is_as_one_that_there_is_not() -> None:
    cells = gate(cell("base", precision="fp32", seeds=THREE), cell("low", precision="bf16", image_size=None, seeds=THREE))
    assert status(cells["low"]) == "proven"


def test_the_batch_that_a_trial_was_given_is_its_batch() -> None:
    given: dict[str, Any] = {"batch_size": 24, "seeds": THREE}
    cells = gate(cell("base", precision="fp32", **given), cell("low", precision="bf16", result_summary={"batch_size": 8}, **given))
    assert status(cells["low"]) == "proven"


def test_another_seed_is_nothing_that_a_reference_differs_in() -> None:
    cells = gate(cell("base", precision="fp32", seeds=(0,)), cell("longer", precision="bf16", learning_rate=1.0, seeds=(7,)))
    assert str(cells["longer"].parity_note).endswith("cell differs in learning_rate, so it is no reference")


def test_of_cells_that_are_no_reference_the_one_is_named_that_lacks_least() -> None:
    loose: dict[str, Any] = {"linear": "switchback", "allow_tf32": True, "seeds": THREE}
    cells = gate(cell("base", precision="fp32", **loose), cell("bf16", precision="bf16", **loose), cell("half", precision="fp16", **loose))
    assert str(cells["half"].parity_note).endswith("; a cell in bf16 would be one with linear plain")
