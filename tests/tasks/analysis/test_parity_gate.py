"""Which fp32 cell a curve is judged against, and what is said where there is none."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.analysis.compare_cells import make_cells
from tasks.analysis.results import TrialRow, load_sweep
from tasks.report.model import make_report
from tests.tasks.cell_support import by_name, made, row, settings, workers
from tests.tasks.fake_sweep import Fake, make_sweep


def cells_of(folder: Path) -> dict[str, Cell]:
    sweep = load_sweep(folder)
    return {str(cell.axes["name"]): cell for cell in make_cells(sweep.rows, sweep.plan.suite)}


def fake(name: str, precision: str, **more: Any) -> Fake:
    outcome = more.pop("outcome", Outcome.OK)
    return Fake({"name": name}, outcome=outcome, parameters={"name": "", "precision": precision, "steps": 55, **more})


def test_the_reference_learns_the_same_and_its_absence_has_a_reason(tmp_path: Path) -> None:
    folder = make_sweep(
        tmp_path,
        [
            fake("reference", "fp32", compile="none"),
            fake("compiled", "bf16", compile="layer"),
            fake("longer", "bf16", compile="none", steps=80),
            fake("other seed and batch", "bf16", seed=1, batch_size=16),
            fake("big reference", "fp32", batch_size=64, outcome=Outcome.DOES_NOT_FIT),
            fake("big", "bf16", batch_size=64),
        ],
    )
    cells = cells_of(folder)
    assert cells["compiled"].parity is not None and cells["compiled"].parity.inside
    assert cells["compiled"].parity.steps[-1] == 60, "every step counts, warm-up too"
    missing = {name: cell.parity_note for name, cell in cells.items() if cell.parity_note}
    assert missing == {
        "longer": "no fp32 reference: the nearest fp32 cell has another steps: the loss was not gated",
        "other seed and batch": "no fp32 reference: the nearest fp32 cell has another batch_size and seed: the loss was not gated",
        "big": "its fp32 reference ended without a curve (does_not_fit): the loss was not gated",
    }
    cautions = make_report(load_sweep(folder)).cautions
    assert sum("Loss parity could not be checked for 1 cell" in line for line in cautions) == 3, "each reason is said"


def test_the_largest_batch_is_compared_at_what_it_came_to(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, [fake("fp32", "fp32", batch_size=24), fake("max", "bf16", batch_size="max")])
    assert "another batch_size" in str(cells_of(folder)["max"].parity_note)
    for path in (folder / "trials").glob("*/result.json"):
        path.write_text(path.read_text().replace('"summary":{}', '"summary":{"batch_size":24}'))
    assert cells_of(folder)["max"].parity is not None


# --- from rows: which repeat decides, how wide the band is


def gated(losses: list[list[float]], reference: list[list[float]] | None = None, **more: Any) -> Cell:
    """The bf16 cell of a sweep in which it and its fp32 reference have these curves, one for each repeat."""
    curves = {"fp32": [[2.0] * 50] if reference is None else reference, "bf16": losses}
    rows = [
        row(workers(0, precision=precision), repeat=place, losses=curve, **more)
        for precision, group in curves.items()
        for place, curve in enumerate(group, 1)
    ]
    return by_name(made(rows, settings(baseline={"precision": "fp32"}, rows=("precision",))))["cpu · MP-0 · bf16"]


def test_the_worst_repeat_decides_whether_the_loss_kept_to_its_band() -> None:
    """A reference of 2 without noise: the band is half a percent of it, 0.01."""
    cell = gated([[2.0] * 50, [2.005] * 50, [2.002] * 50])
    assert cell.parity is not None and cell.parity.worst == pytest.approx(0.5) and cell.parity.inside and cell.claimed
    assert cell.parity_note is None
    cell = gated([[2.0] * 50, [2.0] * 20 + [2.03] * 30, [2.005] * 50])
    assert cell.parity is not None and cell.parity.worst == pytest.approx(3.0) and not cell.parity.inside and not cell.claimed
    assert cell.parity_note == "the loss left the band of fp32 at step 21 (by 3.0 times its half-width): no speed-up is claimed"
    cell = gated([[2.0] * 50, [2.0] * 10 + [math.nan] * 40])
    assert cell.parity_note == "the loss left the band of fp32 at step 11 (it is not finite there): no speed-up is claimed"


def test_the_references_repeats_widen_the_band() -> None:
    curve = [[2.03] * 50]
    assert not gated(curve).claimed
    wide = gated(curve, [[2.0] * 50, [2.03] * 50])
    assert wide.claimed and wide.parity is not None and np.allclose(wide.parity.reference, 2.0), "around the first of them"


def test_the_reference_is_judged_by_nobody_and_short_curves_say_so() -> None:
    rows = [row(workers(0, precision=name), losses=[2.0] * steps) for name, steps in (("fp32", 50), ("bf16", 4))]
    reference, short = made(rows, settings(baseline={}, rows=("precision",)))
    assert reference.parity is None and reference.parity_note is None
    assert short.parity is None and short.parity_note == "the loss was not gated: 4 steps in common are too few to judge a loss curve"
    assert short.claimed
    [plain] = made([row(workers(0), losses=[2.0] * 50)])
    assert plain.parity is None and plain.parity_note is None, "no precision, no gate"
    [failed] = made([row(workers(0, precision="bf16"), None, outcome=Outcome.CRASHED)])
    assert failed.parity_note is None


def test_the_reference_is_of_the_same_pool_first_then_the_one_with_the_fewest_other_settings() -> None:
    def cell(pool: str, precision: str, loss: float, **chosen: object) -> TrialRow:
        return row(workers(0, pool, precision=precision), losses=[loss] * 50, parameters={"compile": "none", "threads": 1, **chosen})

    rows = [
        cell("other", "fp32", 1.0),
        cell("mine", "fp32", 2.0, compile="layer", threads=2),
        cell("mine", "fp32", 3.0, compile="layer"),
        cell("mine", "bf16", 3.0),
    ]
    found = made(rows, settings(baseline={}, rows=("precision",)))[-1]
    assert found.parity is not None and found.parity.inside
    assert np.allclose(found.parity.reference, 3.0)


def test_without_a_reference_the_nearest_fp32_cell_is_named_by_what_differs() -> None:
    rows = [
        row(workers(0, precision="fp32"), losses=[2.0] * 50, parameters={"seed": 1, "batch_size": 9}),
        row(workers(0, precision="fp32", model="b"), losses=[2.0] * 50, parameters={"batch_size": 8}),
        row(workers(0, precision="bf16"), losses=[2.0] * 50, parameters={"batch_size": 8}),
    ]
    cells = made(rows, settings(baseline={}, rows=("precision",)))
    assert cells[2].parity is None
    assert cells[2].parity_note == "no fp32 reference: the nearest fp32 cell has another model: the loss was not gated"
    assert made(rows[2:])[0].parity_note == "no fp32 reference in the sweep: the loss was not gated"
    failed = row(workers(0, precision="fp32"), None, outcome=Outcome.HANG, parameters={"batch_size": 8})
    assert made([failed, rows[2]])[1].parity_note == "its fp32 reference ended without a curve (hang): the loss was not gated"


def test_the_largest_batch_counts_as_what_it_came_to_in_the_reference() -> None:
    def pair(came_to: int) -> Cell:
        rows = [
            row(workers(0, precision="fp32"), losses=[2.0] * 50, parameters={"batch_size": 24}),
            row(workers(0, precision="bf16"), losses=[2.0] * 50, parameters={"batch_size": "max"}, result_summary={"batch_size": came_to}),
        ]
        return made(rows, settings(baseline={}, rows=("precision",)))[1]

    assert pair(24).parity is not None
    rows = [row(workers(0, precision=name), losses=[2.0] * 50, parameters={"batch_size": 24}) for name in ("fp32", "bf16")]
    rows[1] = row(rows[1].trial.axes, losses=[2.0] * 50, parameters={"batch_size": 24}, result_summary={"batch_size": 12})
    assert made(rows, settings(baseline={}, rows=("precision",)))[1].parity is not None, "24 was asked for and not max"
    assert pair(32).parity_note == "no fp32 reference: the nearest fp32 cell has another batch_size: the loss was not gated"
