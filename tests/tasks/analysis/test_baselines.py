"""Which cell another one is compared with."""

from __future__ import annotations

import math

import pytest

from tests.tasks.cell_support import EVEN, baseline_of, made, repeats, row, settings, workers


def test_the_baseline_has_the_cells_other_axes() -> None:
    rows = [row(workers(count, pool, precision=precision)) for pool in "ab" for precision in ("fp32", "bf16") for count in (0, 1)]
    suite = settings(rows=("pool", "precision"), baseline={"precision": "fp32", "dataloader_workers": 0})
    cells = made(rows, suite)
    assert {cell.name: cell.baseline.name for cell in cells if cell.baseline} == {
        cell.name: f"{cell.trial.pool} · MP-0 · fp32" for cell in cells
    }


def test_a_baseline_axis_that_a_cell_has_not_is_ignored() -> None:
    cells = made([row({"pool": "cpu", "model": "a"}), row(workers(0, model="b")), row(workers(1, model="b"))], settings(rows=("model",)))
    assert [cell.baseline is other for cell, other in zip(cells, (cells[0], cells[1], cells[1]), strict=True)] == [True] * 3


def test_a_baseline_that_did_not_run_is_none() -> None:
    [cell] = made([row(workers(1))])
    assert cell.baseline is None and cell.speedup is None
    assert baseline_of(cell, [cell], settings(baseline={"dataloader_workers": 1})) is cell
    assert baseline_of(cell, [cell], settings(baseline={"dataloader_workers": 0})) is None


def test_without_a_baseline_it_is_the_first_of_the_table_row() -> None:
    rows = [row(workers(count, pool)) for pool in "ab" for count in (4, 2, 0)]
    cells = made(rows, settings(baseline={}))
    assert {cell.name: cell.baseline.name for cell in cells if cell.baseline} == {cell.name: f"{cell.trial.pool} · MP-4" for cell in cells}
    columnless = made(rows, settings(baseline={}, columns="precision"))
    assert all(cell.baseline is None for cell in columnless)


ARMS = [{"precision": ["bf16", "fp8", "fp8"], "kernels": ["stock", "fused", "stock"], "block_weights": ["fp32", "bf16", "bf16"]}]


@pytest.mark.parametrize("named", [{"precision": "bf16"}, {"precision": "bf16", "kernels": "stock"}, {"block_weights": "fp32"}])
def test_what_is_linked_to_a_named_axis_of_the_baseline_goes_with_it(named: dict[str, str]) -> None:
    """fp8 with kernels of ours is compared with bf16 and stock ones: bf16 with kernels of ours is in no plan."""
    arms = [dict(zip(ARMS[0], values, strict=True)) for values in zip(*ARMS[0].values(), strict=True)]
    rows = [one for arm, rate in zip(arms, (100.0, 120.0, 110.0), strict=True) for one in repeats(workers(0, **arm), rate, EVEN)]
    plain, fused, stock = made(rows, {**settings(baseline=named), "linked": ARMS})
    assert plain.baseline is plain and fused.baseline is plain and stock.baseline is plain
    assert fused.speedup is not None and math.exp(fused.speedup.effect) == pytest.approx(1.2)


def test_a_linked_value_that_is_not_sure_stays_the_cells_own() -> None:
    """With precision fp8 as the baseline kernels may be either: each cell has the baseline of its own kernels."""
    arms = [dict(zip(ARMS[0], values, strict=True)) for values in zip(*ARMS[0].values(), strict=True)]
    rows = [one for arm in arms for one in repeats(workers(0, **arm), 100.0, EVEN)]
    plain, fused, stock = made(rows, {**settings(baseline={"precision": "fp8"}), "linked": ARMS})
    assert plain.baseline is stock and fused.baseline is fused and stock.baseline is stock
