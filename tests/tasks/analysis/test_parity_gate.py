"""Which cells have to prove that they learn the same, and what is claimed of them and may lead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from experiments.stats.loss_parity import ParityStatus
from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.analysis.trial_row import TrialRow
from tests.tasks.analysis.parity_support import NEEDS, PLAIN, THREE, cell, gate, status
from tests.tasks.cell_support import by_name, gated_rows, made, row, settings, workers


def test_three_states() -> None:
    cells = by_name(made(gated_rows(2.0, 2.1), settings(baseline={"precision": "fp32", "dataloader_workers": 0}, rows=("precision",))))
    reference, proven, struck = (cells[f"cpu · {name}"] for name in ("MP-0 · fp32", "MP-0 · bf16", "MP-1 · bf16"))
    assert (reference.parity, reference.parity_note, reference.claimed) == (None, None, True)
    assert (status(proven), proven.claimed, proven.struck) == ("proven", True, False)
    within = "the loss is equal within 0.5 % (+0.000 % to +0.000 %, 90 % interval), against fp32 over 120 steps, 3 of 3 seeds"
    assert proven.parity_note == f"proven: {within}; a divergence of 0.500 % would have been found"
    assert (status(struck), struck.claimed, struck.struck) == ("struck", False, True)
    assert struck.parity_note == (
        "struck: the loss differs by +5.000 % from step 1, against fp32 over 120 steps, 3 of 3 seeds: no speed-up is claimed"
    )


def test_what_computes_as_its_baseline_has_nothing_to_prove() -> None:
    base, loaded = cell("base", precision="bf16"), cell("loaded", precision="bf16", dataloader_workers=4)
    cells = gate(base, loaded, cell("evaluated", precision="bf16", evaluate=True))
    assert all(one.parity is None and one.claimed for one in cells.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compile", "layer"),
        ("attention", "sdpa"),
        ("optimizer", "fused"),
        ("parallel", "fsdp2"),
        ("linear", "fp8"),
        ("precision", "tf32"),
        ("precision", "fp8"),
    ],
)
def test_whatever_changes_how_numbers_are_computed_has_to_be_proven(name: str, value: object) -> None:
    cells = gate(cell("base", **PLAIN), cell("other", **{**PLAIN, name: value}))
    assert status(cells["other"]) == "unproven" and not cells["other"].claimed
    assert cells["other"].parity_note == f"unproven against fp32: {NEEDS}"
    proven = gate(cell("base", seeds=THREE, **PLAIN), cell("other", seeds=THREE, **{**PLAIN, name: value}))
    assert status(proven["other"]) == "proven" and proven["base"].parity is None


def test_another_kind_of_device_has_to_be_proven() -> None:
    cells = gate(cell("base", precision="fp32", device="cuda"), cell("other", precision="fp32", device="hpu"))
    assert status(cells["other"]) == "unproven" and cells["base"].parity is None


def test_the_baselines_numerics_say_what_is_claimed_and_the_others_what_may_lead() -> None:
    """As in a sweep of fp32 and bf16 whose baseline is the cell of equal precision without loader processes."""
    rows = [one for name in ("fp32", "bf16") for count in (0, 1) for one in [row(workers(count, precision=name), losses=[2.0] * 50)]]
    cells = by_name(made(rows, settings(rows=("precision",))))
    slow, fast = cells["cpu · MP-0 · fp32"], cells["cpu · MP-1 · bf16"]
    assert status(fast) == "unproven" and fast.claimed, "over its baseline, which computes alike"
    assert not fast.may_lead(slow) and fast.may_lead(cells["cpu · MP-0 · bf16"]) and slow.may_lead(fast)


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_what_is_more_exact_than_its_baseline_has_nothing_to_prove_to_it(precision: str) -> None:
    """As where the baseline gathers weights in bf16, and what both it and fp8 are compared with has them in fp32."""
    sharded: dict[str, Any] = {"autocast": False, "fsdp_compute": "bf16", "seeds": THREE}
    plain: dict[str, Any] = {"autocast": True, "fsdp_compute": "fp32", "seeds": THREE}
    cells = gate(
        cell("base", precision="bf16", **sharded), cell("plain", precision=precision, **plain), cell("fp8", precision="fp8", **sharded)
    )
    assert (cells["plain"].parity, cells["plain"].reference, cells["plain"].claimed) == (None, precision, True)
    assert all(f"against {precision} over 120 steps" in str(cells[name].parity_note) for name in ("base", "fp8"))
    equal = gate(cell("base", precision="bf16", **plain), cell("plain", precision="bf16", compile="layer", **plain))
    assert "against bf16" in str(equal["plain"].parity_note), "as exact, and computes otherwise: it has"


def batches(*cells: tuple[str, int]) -> dict[str, Cell]:
    """Cells of (precision, batch), three seeds each, each compared with the batch of 32 in its precision."""
    axes = [{"pool": "cpu", "precision": precision, "batch_size": batch} for precision, batch in cells]
    curve = [6.0] * 20 + [2.0] * 100
    rows = [row(each, repeat=seed + 1, losses=curve, parameters={"seed": seed}) for each in axes for seed in THREE]
    found = made(rows, settings(baseline={"batch_size": 32}, rows=("precision",), columns="batch_size"))
    return {f"{one.axes['precision']} {one.axes['batch_size']}": one for one in found}


def test_what_nothing_was_held_against_leads_only_what_computes_alike() -> None:
    cells = batches(("fp32", 32), ("fp16", 32), ("fp16", 64))
    reference, proven, larger = cells["fp32 32"], cells["fp16 32"], cells["fp16 64"]
    assert (reference.reference, proven.reference, larger.reference) == ("fp32", "", "")
    assert (reference.parity, status(proven), larger.parity) == (None, "proven", None)
    assert larger.claimed and larger.may_lead(proven), "its baseline computes alike"
    assert not larger.may_lead(reference), "no reference has its batch"
    assert reference.may_lead(proven) and reference.may_lead(larger) and proven.may_lead(larger)


def test_a_reference_leads_no_more_exact_one_that_it_was_not_held_against() -> None:
    cells = batches(("bf16", 32), ("fp16", 32), ("fp32", 64), ("fp16", 64))
    reference, full = cells["bf16 32"], cells["fp32 64"]
    assert (reference.reference, full.reference) == ("bf16", "fp32")
    assert reference.may_lead(cells["fp16 32"]) and reference.may_lead(cells["fp16 64"])
    assert not reference.may_lead(full) and full.may_lead(reference)
    cells = batches(("bf16", 32), ("fp16", 32), ("tf32", 64), ("fp16", 64))
    reference, tf32 = cells["bf16 32"], cells["tf32 64"]
    assert (reference.reference, tf32.reference) == ("bf16", "tf32")
    assert not reference.may_lead(tf32) and tf32.may_lead(reference)
    cells = batches(("tf32", 32), ("fp16", 32), ("fp32", 64), ("fp16", 64))
    assert not cells["tf32 32"].may_lead(cells["fp32 64"]) and cells["fp32 64"].may_lead(cells["tf32 32"])


def test_references_serve_parity_alone() -> None:
    rows = gated_rows(2.0)
    rows = [one if one.trial.parameters["precision"] == "bf16" else _as_reference(one) for one in rows]
    [only] = made(rows, settings(rows=("precision",)))
    assert only.trial.parameters["precision"] == "bf16" and only.parity is not None and only.parity.status is ParityStatus.PROVEN


def _as_reference(one: TrialRow) -> TrialRow:
    return replace(one, trial=one.trial.model_copy(update={"reference": True}))


def test_a_cell_without_a_value_has_nothing_to_prove() -> None:
    cells = gate(cell("base", precision="fp32", seeds=THREE), cell("low", precision="bf16", outcome=Outcome.DOES_NOT_FIT))
    assert (cells["low"].parity, cells["low"].parity_note) == (None, None)
