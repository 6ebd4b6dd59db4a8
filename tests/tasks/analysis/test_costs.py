"""What a million samples cost in a cell, its interval, and the front of rate and cost."""

from __future__ import annotations

import pytest

from experiments.price import COST
from tasks.analysis.cell import Cell
from tasks.analysis.costs import CellCost, cheaper, costs_of, front
from tests.tasks.cell_support import gated_rows, made, repeats, row, settings, workers
from tests.tasks.price_support import priced

# 3.6 an hour is 0.001 a second: at 100 samples/s a million samples cost 10


def on_front(cells: list[Cell]) -> list[str]:
    return [one.cell.name for one in front(costs_of(cells), lambda one: one.cost)]


def test_the_interval_is_that_of_the_throughput_with_its_ends_changed() -> None:
    [cell] = made(priced(repeats(workers(0), 100.0)))
    [found] = costs_of([cell])
    assert cell.estimate is not None and found.cost is not None
    assert found.cost.value == pytest.approx(10.0)
    assert (found.cost.low, found.cost.high) == pytest.approx((1000 / cell.estimate.high, 1000 / cell.estimate.low))
    assert found.cost.se == pytest.approx(cell.estimate.se) and found.currency == "USD"


def test_a_single_repeat_has_a_cost_without_an_interval() -> None:
    [found] = costs_of(made(priced([row(workers(0), 100.0)])))
    assert found.cost is not None and (found.cost.value, found.cost.low, found.cost.high) == pytest.approx((10.0, 0.0, float("inf")))


def test_how_much_cheaper_a_cell_is_is_its_speed_up_by_what_both_pay() -> None:
    rows = [*priced(repeats(workers(0), 100.0)), *priced(repeats(workers(1), 150.0, (0.02, 0.0, -0.02)), units=2)]
    base, cell = made(rows)
    first, second = costs_of([base, cell])
    assert first.cheaper is None and second.cheaper is not None and cell.speedup is not None
    assert second.cheaper.value == pytest.approx(0.75)
    assert (second.cheaper.low, second.cheaper.high) == pytest.approx((cell.speedup.low / 2, cell.speedup.high / 2))


def test_two_currencies_have_no_ratio() -> None:
    base, cell = made([*priced(repeats(workers(0), 100.0)), *priced(repeats(workers(1), 150.0), currency="EUR")])
    assert cell.speedup is not None and cheaper(cell.speedup, cell, base) is None


def test_energy_is_in_kilowatt_hours_for_a_million_samples() -> None:
    [found] = costs_of(made(repeats(workers(0), 100.0, summary={"energy_j_per_sample": 7.2})))
    assert found.energy is not None and found.energy.value == pytest.approx(2.0)
    assert (found.cost, found.price, found.currency) == (None, None, "")


def test_what_one_repeat_lacks_is_not_known_of_the_cell() -> None:
    rows = [*priced(repeats(workers(0), 100.0, (0.0, 0.01))), row(workers(0), 100.0, repeat=3)]
    assert costs_of(made(rows))[0].cost is None


def test_an_emulated_cell_costs_nothing_that_is_known() -> None:
    cells = made(priced(repeats(workers(0), 100.0, emulated=True)), emulated=True)
    assert [one.cost for one in costs_of(cells)] == [None]


def test_the_cost_can_be_the_metric_and_less_is_better() -> None:
    suite = settings(metric=COST)
    rows = [*priced(repeats(workers(0), 100.0, summary={COST: 10.0})), *priced(repeats(workers(1), 200.0))]
    _, cell = made(rows, suite)
    assert cell.estimate is not None and cell.estimate.value == pytest.approx(5.0) and cell.metric.unit == "USD"
    assert cell.speedup is not None and cell.speedup.value == pytest.approx(2.0) and cell.verdict == "faster"
    assert costs_of([cell])[0].cheaper == cell.speedup


def test_on_the_front_is_whom_nobody_beats_in_one_without_losing_in_the_other() -> None:
    rates = {0: (100.0, 1), 1: (150.0, 2), 2: (90.0, 1), 3: (140.0, 2), 4: (100.0, 1)}
    rows = [one for count, (rate, units) in rates.items() for one in priced(repeats(workers(count), rate, (0.0, 0.0)), units=units)]
    assert on_front(made(rows)) == ["cpu · MP-0", "cpu · MP-1", "cpu · MP-4"], "equal cells are both on it"


def test_a_cell_of_unknown_cost_is_not_on_the_front_and_takes_nobody_off() -> None:
    rows = [*priced(repeats(workers(0), 100.0)), *priced(repeats(workers(1), 90.0)), *repeats(workers(2), 900.0)]
    assert on_front(made(rows)) == ["cpu · MP-0"]


def test_each_currency_and_each_work_has_its_front_and_one_alone_has_none() -> None:
    rows = [one for count, rate in enumerate((100.0, 80.0)) for one in priced(repeats(workers(count, width=64), rate))]
    rows += [one for count, rate in enumerate((10.0, 9.0)) for one in priced(repeats(workers(count, width=256), rate))]
    suite = {**settings(), "same_work": ["width"]}
    both = ["cpu · MP-0 · width 64", "cpu · MP-0 · width 256"]
    assert on_front(made(rows, suite)) == both
    dear = priced(repeats(workers(2, width=64), 90.0), 100.0, currency="EUR")
    assert on_front(made([*rows, *dear], suite)) == both
    assert on_front(made([*rows, *dear, *priced(repeats(workers(3, width=64), 80.0), 100.0, currency="EUR")], suite)) == [
        *both,
        "cpu · MP-2 · width 64",
    ]


def test_a_struck_cell_is_not_on_the_front() -> None:
    cells = made(priced(gated_rows(4.0, 2.0)))
    assert [cell.struck for cell in cells] == [False, True, False]
    assert on_front(cells) == [cells[2].name]


def test_what_is_found_is_in_the_cells_order() -> None:
    cells = made([*priced(repeats(workers(0), 100.0)), *repeats(workers(1), 150.0)])
    found: list[CellCost] = costs_of(cells)
    assert [one.cell for one in found] == cells
