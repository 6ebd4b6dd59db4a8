from __future__ import annotations

from pathlib import Path

import pytest

from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from tasks.report.compare_sweeps import Comparison, compare, write_comparison
from tests.tasks.fake_sweep import Fake, make_sweep

A, B = "made-up-20260101-000000-0000", "made-up-20260102-000000-0000"


def cells(factor: float = 1.0, pool: str = "cpu", **more: object) -> list[Fake]:
    """Six cells, three repeats; `factor` on the rate of MP-1."""
    return [
        Fake(
            {"pool": pool, "precision": precision, "dataloader_workers": workers},
            rate=100 * (factor if workers == 1 else 1),
            repeats=3,
            **more,  # type: ignore[arg-type]
        )
        for precision in ("fp32", "bf16")
        for workers in (0, 1, 2)
    ]


def compared(root: Path, a: list[Fake], b: list[Fake]) -> Comparison:
    return compare(make_sweep(root, a, sweep_id=A), make_sweep(root, b, sweep_id=B))


def test_the_same_is_called_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, cells(), cells())
    assert found.counts == {"same": 6}
    assert (found.only_a, found.only_b, found.across_pools) == ([], [], False)


def test_a_slow_down_is_found_where_it_is(tmp_path: Path) -> None:
    crashed = Fake({"pool": "cpu", "precision": "fp32", "dataloader_workers": 9}, outcome=Outcome.CRASHED, reason="<b>boom</b>")
    found = compared(tmp_path, cells(), [*cells(0.9, environment={"torch": "9.9"}), crashed])
    assert found.counts == {"same": 4, "slower": 2}
    slow = [pair for pair in found.pairs if pair.verdict is Verdict.SLOWER]
    assert all(pair.a.axes["dataloader_workers"] == 1 for pair in slow)
    assert slow[0].ratio is not None
    assert slow[0].ratio.value == pytest.approx(0.9, abs=0.01)
    assert slow[0].differs == ["torch"]
    assert found.confounders.rows[0][:3] == ["torch", "2.13.0", "9.9"]
    assert [cell.axes["dataloader_workers"] for cell in found.only_b] == [9]
    markdown, html = write_comparison(found, tmp_path / "out")
    assert "4 cells same, 2 cells slower" in markdown.read_text()
    assert "Only in B" in html.read_text()
    assert "<b>boom" not in html.read_text() + markdown.read_text()


def test_outcomes_that_changed_are_said(tmp_path: Path) -> None:
    one = {"pool": "cpu", "precision": "fp32", "dataloader_workers": 0}
    found = compared(tmp_path, [Fake(one)], [Fake(one, outcome=Outcome.DOES_NOT_FIT, reason="out of memory")])
    assert found.counts == {"ok → does not fit": 1}
    assert found.pairs[0].ratio is None


def test_two_pools_are_compared_if_no_cell_shares_one(tmp_path: Path) -> None:
    found = compared(tmp_path, cells(), cells(2.0, pool="gpu"))
    assert found.across_pools
    assert found.counts == {"same": 4, "faster": 2}
    assert "on everything but the pool" in found.remarks[0]


def test_a_faster_cell_whose_loss_left_its_band_is_not_claimed(tmp_path: Path) -> None:
    b = cells()
    for fake in b:
        if fake.axes["precision"] == "bf16":
            fake.rate = 150
            fake.loss = lambda step: 2 + 3 * 0.97**step + (0.6 if step > 30 else 0)
    assert compared(tmp_path, cells(), b).counts == {"same": 3, "not claimed: the loss left its band": 3}


def test_nothing_in_common(tmp_path: Path) -> None:
    other = [Fake({"pool": "cpu", "precision": "fp32", "dataloader_workers": 7})]
    found = compared(tmp_path, cells(), other)
    assert found.pairs == []
    assert found.headline == "The two sweeps have no cell in common."
    write_comparison(found, tmp_path)
