"""Figures: throughput against cost, and against energy."""

from __future__ import annotations

import pytest

from tasks.analysis.costs import costs_of
from tasks.report.figures.cost import cost_figure, energy_figure
from tests.tasks.cell_support import made, repeats, settings, workers
from tests.tasks.price_support import priced

ROWS = [*priced(repeats(workers(0), 100.0)), *priced(repeats(workers(1), 150.0), units=2), *priced(repeats(workers(2), 90.0))]


def test_a_point_for_each_cell_with_those_on_the_front_marked() -> None:
    figure = cost_figure(made(ROWS))
    assert figure is not None
    [axes] = figure.axes
    points = [(line.get_xdata()[0], line.get_ydata()[0], line.get_marker()) for line in axes.lines if line.get_marker() in ("o", "s")]
    assert [(round(x, 6), round(y, 6), marker) for x, y, marker in points] == [
        (10.0, 100.0, "o"),
        (13.333333, 150.0, "o"),
        (11.111111, 90.0, "s"),
    ]
    assert [text.get_text() for text in axes.texts] == ["MP-0", "MP-1", "MP-2"]
    assert axes.get_xlabel() == "cost of a million samples (USD), 95 % interval; less is better"
    assert axes.get_ylabel() == "throughput (samples/s)"
    [stairs] = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert list(stairs.get_ydata()) == pytest.approx([100.0, 150.0])
    assert stairs.get_drawstyle() == "steps-post", "for less than the next amount nothing is faster"
    assert (axes.get_xlim(), axes.get_ylim()[0]) == (pytest.approx((0.0, 1.25 * 13.333333)), 0.0)


def test_both_intervals_of_a_point_are_drawn_whole() -> None:
    cells = made(ROWS)
    figure = cost_figure(cells)
    assert figure is not None
    lines = [line for line in figure.axes[0].lines if line.get_linestyle() == "-" and line.get_marker() == "None"]
    costs, rates = lines[::2], lines[1::2]
    for one, cost, rate in zip(costs_of(cells), costs, rates, strict=True):
        assert one.cost is not None and one.rate is not None
        assert (*cost.get_xdata(), *cost.get_ydata()) == (one.cost.low, one.cost.high, one.rate.value, one.rate.value)
        assert (*rate.get_xdata(), *rate.get_ydata()) == (one.cost.value, one.cost.value, one.rate.low, one.rate.high)


def test_cells_that_do_other_work_have_fronts_of_their_own_and_no_line() -> None:
    rows = [*ROWS, *priced(repeats(workers(0, model="other"), 50.0))]
    figure = cost_figure(made(rows, {**settings(rows=("model",)), "same_work": ["model"]}))
    assert figure is not None
    assert [line for line in figure.axes[0].lines if line.get_linestyle() == "--"] == []


def test_without_prices_or_with_one_cell_or_two_currencies_there_is_none() -> None:
    assert cost_figure(made(repeats(workers(0), 100.0))) is None
    assert cost_figure(made(ROWS[:3])) is None
    assert cost_figure(made([*ROWS[:3], *priced(repeats(workers(1), 150.0), currency="EUR")])) is None


def test_energy_has_a_figure_of_its_own() -> None:
    rows = [one for count in (0, 1) for one in repeats(workers(count), 100.0, summary={"energy_j_per_sample": 3.6 * (count + 1)})]
    figure = energy_figure(made(rows))
    assert figure is not None and figure.axes[0].get_xlabel() == "energy of a million samples (kWh), 95 % interval; less is better"
    assert energy_figure(made(ROWS)) is None and cost_figure(made(rows)) is None
