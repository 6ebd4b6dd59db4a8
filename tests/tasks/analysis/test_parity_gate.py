"""Which fp32 cell a curve is judged against, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.analysis.compare_cells import make_cells
from tasks.analysis.results import load_sweep
from tasks.report.model import make_report
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
