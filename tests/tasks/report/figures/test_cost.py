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


def test_an_interval_beyond_the_points_ends_within_the_axes_and_a_boundless_one_is_cut_off() -> None:
    wide = [*priced(repeats(workers(0), 100.0, (-0.4, 0.0, 0.4))), *priced(repeats(workers(1), 80.0))]
    [one, other] = costs_of(made(wide))
    assert one.rate is not None and other.rate is not None and one.rate.high > 1.15 * one.rate.value > other.rate.high
    figure = cost_figure(made(wide))
    assert figure is not None
    assert figure.axes[0].get_ylim()[1] == pytest.approx(min(1.03 * one.rate.high, 2 * one.rate.value))
    narrow = cost_figure(made(ROWS))
    assert narrow is not None and narrow.axes[0].get_ylim()[1] == pytest.approx(1.15 * 150.0)


def test_a_name_stands_on_the_side_with_more_room_in_lines_that_end_within_the_axes() -> None:
    rows = [*priced(repeats(workers(0, model="m" * 40, fixed="f" * 40), 100.0), units=4), *priced(repeats(workers(1), 100.0))]
    figure = cost_figure(made(rows))
    assert figure is not None
    [axes] = figure.axes
    figure.draw_without_rendering()
    whole = axes.get_window_extent()
    assert [text.get_ha() for text in axes.texts] == ["right", "left"]
    assert all(whole.x0 <= text.get_window_extent().x0 and text.get_window_extent().x1 <= whole.x1 for text in axes.texts)


def test_no_name_lies_over_another() -> None:
    """On FLAVA's page the names of two cells with 27.6 and 25.8 samples/s could not be read."""
    rates = (100.0, 98.0, 96.0, 94.0, 300.0)
    rows = [one for at, rate in enumerate(rates) for one in priced(repeats(workers(at, model="m" * 20), rate))]
    figure = cost_figure(made(rows))
    assert figure is not None
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 5 and not [1 for at, one in enumerate(boxes) for other in boxes[:at] if one.overlaps(other)]


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
