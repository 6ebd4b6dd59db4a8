"""Figure: a metric over the values of an axis, as the table says it, with its intervals."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from experiments.metrics import metric_of
from experiments.spec.schema import ReportFigure
from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.report.figures.axis import axis_figure, published_values
from tests.tasks.cell_support import made, repeats, row, settings, workers

UNEVEN = (-0.06, 0.0, 0.06)


@pytest.fixture
def cells() -> list[Cell]:
    rows = [*repeats(workers(0), 100.0, UNEVEN), *repeats(workers(1), 150.0, UNEVEN), row(workers(2), None, outcome=Outcome.DOES_NOT_FIT)]
    return made(rows)


def drawn(cells: list[Cell], **more: object) -> Figure:
    figure = axis_figure(cells, ReportFigure.model_validate({"title": "t", "metric": "throughput", "x": "dataloader_workers", **more}))
    assert figure is not None
    return figure


def intervals(figure: Figure) -> list[tuple[float, float]]:
    return [(low, high) for low, high in (line.get_ydata() for line in figure.axes[0].lines if line.get_linestyle() == "-")]


def test_bars_and_intervals_are_those_of_the_table(cells: list[Cell]) -> None:
    figure = drawn(cells)
    [axes] = figure.axes
    estimates = [cell.estimate for cell in cells if cell.estimate]
    assert len(estimates) == 2
    assert [bar.get_height() for bar in axes.patches] == [*(one.value for one in estimates), 0.0]
    assert intervals(figure) == [(one.low, min(one.high, 1.3 * estimates[1].value)) for one in estimates]
    assert [text.get_text().strip() for text in axes.texts] == ["100", "150", "does not fit"]
    assert [text.get_position()[1] for text in axes.texts] == [*(high for _, high in intervals(figure)), 0.0], "above the interval"


def test_ratios_are_those_of_the_table_and_the_baseline_is_one(cells: list[Cell]) -> None:
    figure = drawn(cells, relative=True)
    speedup = cells[1].speedup
    assert speedup is not None
    assert [bar.get_height() for bar in figure.axes[0].patches] == [1.0, speedup.value, 0.0]
    assert intervals(figure) == [(speedup.low, min(speedup.high, 1.3 * speedup.value))]


def test_another_metric_is_a_mean_without_an_interval(cells: list[Cell]) -> None:
    for cell in cells[:2]:
        for one, value in zip(cell.rows, (1.0, 2.0, 6.0), strict=True):
            one.summary["mfu"] = value / 10  # type: ignore[index]
    figure = drawn(cells, metric="mfu")
    assert [bar.get_height() for bar in figure.axes[0].patches] == pytest.approx([0.3, 0.3, 0.0])
    assert intervals(figure) == []


@pytest.mark.parametrize(("metric", "ratio"), [("mfu", 2.0), ("step_time_p90_s", 0.5)])
def test_a_ratio_of_another_metric_is_above_one_where_the_cell_is_better(cells: list[Cell], metric: str, ratio: float) -> None:
    for cell, value in zip(cells[:2], (0.2, 0.4), strict=True):
        for one in cell.rows:
            one.summary[metric] = value  # type: ignore[index]
    assert [bar.get_height() for bar in drawn(cells, metric=metric, relative=True).axes[0].patches] == pytest.approx([1.0, ratio, 0.0])


def test_what_others_published_is_in_the_figures_unit() -> None:
    """The document's epoch of the baseline takes 0.65 h."""
    suite = settings(rows=("rung",), columns="rung", baseline={"rung": "baseline"}, metric="epoch_time_s")
    parameters = {"model": "h16", "devices": 8}
    [cell] = made([row({"pool": "cuda", "rung": "baseline"}, 3000.0, metric="epoch_time_s", workload="vit", parameters=parameters)], suite)
    values = {entry.metric: value for value, entry in published_values(cell, metric_of("epoch_time_s"), relative=False)}
    assert values == {"epoch_time": pytest.approx(0.65 * 3600)}


def test_an_interval_that_is_not_known_is_not_drawn() -> None:
    figure = drawn(made([row(workers(0), 100.0), row(workers(1), 150.0)]))
    assert [bar.get_height() for bar in figure.axes[0].patches] == pytest.approx([100.0, 150.0])
    assert intervals(figure) == []
