"""Which cells have to prove that they learn the same, against which reference, and what is said where they cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from experiments.stats.loss_parity import ParityStatus
from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.analysis.trial_row import TrialRow
from tests.tasks.cell_support import by_name, gated_rows, made, row, settings, workers

NEEDS = "1 of 3 seeds of the reference; needs 2 more fp32 seeds (parity_reference: 3)"


THREE = (0, 1, 2)


def cell(name: str, loss: float = 2.0, *, seeds: Sequence[int] = (0,), steps: int = 120, **parameters: Any) -> list[TrialRow]:
    """A cell of the axis `name`, a trial for each seed; seeds are a hundredth apart."""
    more = {key: parameters.pop(key) for key in ("device", "outcome", "summary", "result_summary") if key in parameters}
    chosen = {"name": "", **parameters}
    curves = [[loss * (1 + seed / 100) * (3.0 if step < 20 else 1.0) for step in range(steps)] for seed in seeds]
    value = None if "outcome" in more else 100.0
    return [
        row({"pool": "cpu", "name": name}, value, repeat=at, losses=curve, parameters={**chosen, "seed": seed}, **more)
        for at, (seed, curve) in enumerate(zip(seeds, curves, strict=True), 1)
    ]


def gate(*cells: list[TrialRow], baseline: str = "base") -> dict[str, Cell]:
    found = made([one for rows in cells for one in rows], settings(baseline={"name": baseline}, rows=("name",)))
    return {str(one.axes["name"]): one for one in found}


def status(one: Cell) -> str | None:
    return str(one.parity.status) if one.parity else None


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


PLAIN: dict[str, Any] = {
    "precision": "fp32",
    "compile": "none",
    "attention": "eager",
    "optimizer": "foreach",
    "parallel": "ddp",
    "kernels": "stock",
    "linear": "plain",  # of earlier sweeps
}
FP8: dict[str, Any] = {"precision": "fp8", "kernels": "fused", "seeds": THREE}
BF16: dict[str, Any] = {"precision": "bf16", "kernels": "stock", "seeds": THREE}


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


def test_each_cell_is_judged_by_its_own_curves_and_seeds_of_an_axis_belong_together() -> None:
    """The reference's are put together: fp32 with and without loader processes."""
    base = [*cell("base", precision="fp32", seeds=(0, 1)), *cell("base too", precision="fp32", dataloader_workers=1, seeds=(2,))]
    cells = gate(base, cell("a", precision="bf16", seeds=THREE), cell("b", 2.1, precision="bf16", dataloader_workers=1, seeds=THREE))
    assert (status(cells["a"]), status(cells["b"])) == ("proven", "struck")
    curve = [6.0] * 20 + [2.0] * 100
    rows = [row(workers(0, precision=name, seed=seed), losses=curve) for name in ("fp32", "bf16") for seed in THREE]
    found = made(rows, settings(baseline={"precision": "fp32"}, rows=("precision", "seed")))
    assert [one.parity.pairs for one in found if one.parity] == [3, 3, 3] and all(one.claimed for one in found)


def test_what_is_missing_is_said() -> None:
    def note(seeds: Sequence[int], steps: int = 120, loss: float = 2.0) -> str:
        base = cell("base", precision="fp32", seeds=THREE, steps=steps)
        return str(gate(base, cell("other", loss, precision="bf16", seeds=seeds, steps=steps))["other"].parity_note)

    assert "needs 2 more of its own seeds (repeats: 3)" in note((0,), loss=2.02)
    assert note(THREE, 15).startswith("unproven against fp32: 15 steps are too few; 100 steps would show 1 %")
    assert note((7, 8, 9)) == "unproven against fp32: no seed in common with the reference; needs 3 more of its own seeds (repeats: 3)"
    silent = [row({"pool": "cpu", "name": "other"}, parameters={"name": "", "precision": "bf16", "seed": 0})]
    found = gate(cell("base", precision="fp32", seeds=THREE), silent)["other"]
    assert found.parity_note == "unproven against fp32: its trials give no loss to compare"
    broken = cell("other", precision="bf16", seeds=THREE)
    broken[1].losses[40] = math.inf
    struck = gate(cell("base", precision="fp32", seeds=THREE), broken)["other"]
    assert struck.parity_note == (
        "struck: the loss is not finite from step 41, against fp32 over 120 steps, 3 of 3 seeds: no speed-up is claimed"
    )


def test_a_loss_that_was_not_recorded_is_unproven_and_not_struck() -> None:
    rows = cell("other", precision="bf16", seeds=THREE)
    rows[1].losses[40] = math.nan
    other = gate(cell("base", precision="fp32", seeds=THREE), rows)["other"]
    assert (status(other), other.parity_note) == ("unproven", "unproven against fp32: some losses were not recorded")
    again = cell("other", precision="bf16", seeds=(0, 0, 1))
    again[0].losses[40], again[1].losses[40] = math.nan, math.inf
    assert gate(cell("base", precision="fp32", seeds=THREE), again)["other"].struck, "of two trials of a seed one is known to have broken"


def test_losses_of_disturbed_trials_count() -> None:
    """Other work takes time, and changes no number."""
    base, other = cell("base", precision="fp32", seeds=THREE), cell("other", precision="bf16", seeds=THREE)
    for rows in (base, other):
        assert rows[2].result is not None
        rows[2] = replace(rows[2], result=rows[2].result.model_copy(update={"disturbed": "others"}))
    found = gate(base, other)["other"]
    assert len(found.measured) == 2 and found.parity is not None
    assert (status(found), found.parity.pairs, found.parity.seeds) == ("proven", 3, 3)
    other[2].losses[:] *= 1.5
    other[1].losses[:] *= 1.5
    other[0].losses[:] *= 1.5
    assert gate(base, other)["other"].struck


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


def test_inference_is_compared_batch_by_batch() -> None:
    latency = {"latency_p50_s": 0.1}
    cells = gate(cell("base", precision="fp32", summary=latency), cell("half", 2.0004, precision="fp16", summary=latency))
    assert status(cells["half"]) == "proven" and cells["half"].claimed
    assert "against fp32 over 120 steps, the same batches" in str(cells["half"].parity_note)
    off = gate(cell("base", precision="fp32", summary=latency), cell("half", 2.02, precision="fp16", summary=latency))
    assert off["half"].struck


def test_references_serve_parity_alone() -> None:
    rows = gated_rows(2.0)
    rows = [one if one.trial.parameters["precision"] == "bf16" else _as_reference(one) for one in rows]
    [only] = made(rows, settings(rows=("precision",)))
    assert only.trial.parameters["precision"] == "bf16" and only.parity is not None and only.parity.status is ParityStatus.PROVEN


def _as_reference(one: TrialRow) -> TrialRow:
    return replace(one, trial=one.trial.model_copy(update={"reference": True}))


def diverging(rows: list[TrialRow], *seeds: int, at: int = 60) -> list[TrialRow]:
    """The rows, of which the trainings of these seeds end at a step whose loss is not finite."""

    def ended(one: TrialRow) -> TrialRow:
        losses = one.losses[:at].copy()
        losses[-1] = math.inf
        assert one.result is not None
        result = one.result.model_copy(update={"outcome": Outcome.DIVERGED, "reason": f"the loss was nan at step {at}"})
        return replace(one, result=result, summary={}, losses=losses)

    return [ended(one) if one.trial.parameters["seed"] in seeds else one for one in rows]


@pytest.mark.parametrize("seeds", [(3,), (3, 4, 5), (0,)])
def test_a_training_that_diverges_where_its_reference_does_not_strikes_the_cell_however_many_others_are_equal(
    seeds: tuple[int, ...],
) -> None:
    six = range(6)
    low = diverging(cell("low", precision="bf16", seeds=six), *seeds)
    cells = gate(cell("base", precision="fp32", seeds=six), low)
    assert status(cells["low"]) == "struck" and not cells["low"].claimed and len(cells["low"].measured) == 6 - len(seeds)
    assert cells["low"].parity is not None and cells["low"].parity.left_at == 60


def test_where_the_reference_diverges_as_well_the_other_seeds_tell() -> None:
    six = range(6)
    cells = gate(diverging(cell("base", precision="fp32", seeds=six), 3), diverging(cell("low", precision="bf16", seeds=six), 3))
    assert status(cells["low"]) == "proven" and "5 of 5 seeds" in str(cells["low"].parity_note)


def test_a_divergence_of_a_seed_that_the_reference_has_not_proves_nothing() -> None:
    cells = gate(cell("base", precision="fp32", seeds=THREE), diverging(cell("low", precision="bf16", seeds=range(4)), 3))
    why = "its training of seed 3 diverged, and its reference has none of that seed"
    assert status(cells["low"]) == "unproven" and why in str(cells["low"].parity_note) and not cells["low"].claimed


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


def test_a_cell_without_a_value_has_nothing_to_prove() -> None:
    cells = gate(cell("base", precision="fp32", seeds=THREE), cell("low", precision="bf16", outcome=Outcome.DOES_NOT_FIT))
    assert (cells["low"].parity, cells["low"].parity_note) == (None, None)


def test_of_cells_that_are_no_reference_the_one_is_named_that_lacks_least() -> None:
    loose: dict[str, Any] = {"linear": "switchback", "allow_tf32": True, "seeds": THREE}
    cells = gate(cell("base", precision="fp32", **loose), cell("bf16", precision="bf16", **loose), cell("half", precision="fp16", **loose))
    assert str(cells["half"].parity_note).endswith("; a cell in bf16 would be one with linear plain")


def test_what_differs_is_struck_also_where_another_of_its_seeds_diverged() -> None:
    low = diverging(cell("low", 2.1, precision="bf16", seeds=range(4)), 3)
    assert status(gate(cell("base", precision="fp32", seeds=THREE), low)["low"]) == "struck"


def test_two_trials_of_a_seed_are_compared_over_the_steps_that_both_have() -> None:
    low = cell("low", precision="bf16", seeds=(0, 0, 1, 2))
    low[1] = replace(low[1], losses=low[1].losses[:110])
    parity = gate(cell("base", precision="fp32", seeds=THREE), low)["low"].parity
    assert parity is not None and (parity.status, parity.steps) == (ParityStatus.PROVEN, 110)
