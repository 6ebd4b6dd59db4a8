"""Which losses are compared with the reference's: of which seeds and steps, and where they are missing, not finite or diverged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from experiments.stats.loss_parity import ParityStatus
from tests.tasks.analysis.parity_support import THREE, cell, diverging, gate, status
from tests.tasks.cell_support import made, row, settings, workers


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


def test_what_differs_is_struck_also_where_another_of_its_seeds_diverged() -> None:
    low = diverging(cell("low", 2.1, precision="bf16", seeds=range(4)), 3)
    assert status(gate(cell("base", precision="fp32", seeds=THREE), low)["low"]) == "struck"


def test_two_trials_of_a_seed_are_compared_over_the_steps_that_both_have() -> None:
    low = cell("low", precision="bf16", seeds=(0, 0, 1, 2))
    low[1] = replace(low[1], losses=low[1].losses[:110])
    parity = gate(cell("base", precision="fp32", seeds=THREE), low)["low"].parity
    assert parity is not None and (parity.status, parity.steps) == (ParityStatus.PROVEN, 110)


def test_inference_is_compared_batch_by_batch() -> None:
    latency = {"latency_p50_s": 0.1}
    cells = gate(cell("base", precision="fp32", summary=latency), cell("half", 2.0004, precision="fp16", summary=latency))
    assert status(cells["half"]) == "proven" and cells["half"].claimed
    assert "against fp32 over 120 steps, the same batches" in str(cells["half"].parity_note)
    off = gate(cell("base", precision="fp32", summary=latency), cell("half", 2.02, precision="fp16", summary=latency))
    assert off["half"].struck
