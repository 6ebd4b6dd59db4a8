"""Costs of two sweeps beside each other."""

from __future__ import annotations

from experiments.stats.estimate import Estimate
from tasks.report.costs_beside import costs_beside
from tests.tasks.cell_support import column, made, repeats, settings, workers
from tests.tasks.price_support import priced


def test_how_many_times_less_b_costs_is_its_speed_up_by_what_both_pay() -> None:
    [a], [b] = (made(priced(repeats(workers(0), rate), price)) for rate, price in ((100.0, 3.6), (150.0, 7.2)))
    table = costs_beside([(a, b, Estimate(1.5, 1.4, 1.6, 0.03, 4.0, 3))])
    assert [column(table, name) for name in table.header] == [
        ["cpu · MP-0"],
        ["10.00 USD ±2.5 %"],
        ["13.33 USD ±2.5 %"],
        ["x0.75 (0.70–0.80)"],
    ]


def test_what_only_one_side_knows_has_no_ratio() -> None:
    [a], [b] = made(repeats(workers(0), 100.0)), made(priced(repeats(workers(0), 150.0)))
    table = costs_beside([(a, b, b.estimate)])
    assert table.header == ["cell", "cost, B"] and table.rows == [["cpu · MP-0", "6.667 USD ±2.5 %"]]


def test_of_another_metric_than_the_rate_there_is_no_ratio_of_costs() -> None:
    suite = settings(metric="final_loss")
    rows = [priced(repeats(workers(0), 2.0, metric="final_loss", summary={"throughput": rate})) for rate in (100.0, 150.0)]
    [a], [b] = (made(side, suite) for side in rows)
    assert costs_beside([(a, b, b.estimate)]).header == ["cell", "cost, A", "cost, B"]


def test_without_prices_and_energy_there_is_no_row() -> None:
    [a], [b] = made(repeats(workers(0), 100.0)), made(repeats(workers(0), 150.0))
    assert costs_beside([(a, b, b.estimate)]).rows == []
