"""Section: a line for each comparison with a reference."""

from __future__ import annotations

import pytest

from tasks.report.sections.loss_parity import judged
from tests.tasks.cell_support import column, gated_rows, made, report_of, row, settings, workers


def test_a_line_for_each_comparison_with_what_it_could_have_found() -> None:
    suite = settings(rows=("precision",), baseline={"precision": "fp32", "dataloader_workers": 0})
    table = report_of(gated_rows(2.0, 2.1), suite).section("loss_parity").table
    assert column(table, "cell") == ["MP-0 · bf16", "MP-1 · bf16"]
    assert column(table, "loss parity") == ["proven", "struck"]
    assert column(table, "difference") == ["+0.000 %", "+5.000 %"] and column(table, "seeds") == ["3 of 3"] * 2
    assert column(table, "90 % interval")[0] == "+0.000 % to +0.000 %" and column(table, "would have found") == ["0.500 %"] * 2
    assert column(table, "steps") == ["120"] * 2 and column(table, "at 1 %") == ["100"] * 2


def test_without_a_reference_only_the_reason_is_known() -> None:
    rows = [row(workers(0, precision=name), losses=[2.0] * 50) for name in ("fp32", "fp16")]
    suite = settings(rows=("precision",), baseline={"precision": "fp32"})
    [line] = report_of(rows, suite).section("loss_parity").table.rows
    assert line[1:6] == ["unproven", "–", "–", "–", "50"] and line[-1].endswith("(parity_reference: 3)")
    with pytest.raises(KeyError):
        report_of([row(workers(0)), row(workers(1))]).section("loss_parity")


def test_the_learning_rates_of_what_was_judged_are_told() -> None:
    def text(*rates: float, **summary: float) -> str:
        rows = [
            row(workers(count, precision=name), losses=[2.0] * 50, parameters={"learning_rate": rate}, summary=summary)
            for count, rate in enumerate(rates)
            for name in ("fp32", "fp16")
        ]
        return report_of(rows, settings(rows=("precision",), baseline={"precision": "fp32"})).section("loss_parity").text

    assert text(1e-6).endswith(" All of this is of learning rate 1e-06, and says nothing of higher ones.")
    assert text(1e-4, 5e-6).endswith(" All of this is of learning rates 5e-06 and 0.0001, and says nothing of higher ones.")
    assert "earning rate" not in text(1e-6, latency_p50_s=0.1), "what does not train has none"


def test_cells_that_share_a_comparison_have_one_line() -> None:
    curve = [6.0] * 20 + [2.0] * 100
    rows = [row(workers(0, precision=name, seed=seed), losses=curve) for name in ("fp32", "bf16") for seed in (0, 1, 2)]
    cells = made(rows, settings(baseline={"precision": "fp32"}, rows=("precision", "seed")))
    assert [cell.name for cell in judged(cells)] == ["cpu · MP-0 · bf16 · seed 0"]
