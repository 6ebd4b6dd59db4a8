"""Figure: a bar for each cell, from what was reached up to the data sheet's peak."""

from __future__ import annotations

import pytest

from tasks.report.figures.style import bars, name_bars
from tasks.report.figures.waterfall import COLOURS, waterfall_figure
from tests.tasks.analysis.test_waterfall import PROFILE, RANK
from tests.tasks.cell_support import made
from tests.tasks.report.sections.test_waterfall import ATTAINED, traced


def test_bars_reach_from_nothing_to_the_peak() -> None:
    figure = waterfall_figure(made([traced(profile=ATTAINED), traced(1, clock_mean_mhz=2200.0), traced(2, None)]))
    assert figure is not None
    [axes] = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["MP-0", "MP-1"]
    bars = [bar.get_width() for bar in axes.patches]
    assert bars[::2] == pytest.approx([24.0, 5.0, 2.5, 1.5, 2.0, 4.0, 5.0, 6.0, 10.0, 20.0, 20.0]) and sum(bars[::2]) == pytest.approx(
        100.0
    )
    assert sum(bars[1::2]) == pytest.approx(110.0), "its clock is above the data sheet's"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(COLOURS)
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert [line.get_xdata()[0] for line in axes.lines] == [100]
    assert axes.get_xlabel() == "% of the data sheet's peak; a bar ends beyond it by what was gained"
    assert axes.get_xlim()[0] == 0 and axes.get_xlim()[1] == pytest.approx(1.05 * 110, rel=0.01), "the longest bar ends within it"
    without_gains = waterfall_figure(made([traced(profile=ATTAINED)]))
    assert without_gains is not None and without_gains.axes[0].get_xlabel() == "% of the data sheet's peak"


def test_long_names_have_several_lines_and_leave_room_for_the_bars() -> None:
    short, long = bars(2), bars(2)
    name_bars(*short, ["MP-0", "MP-1"])
    name = "padding removed · varlen · prediction masked · compile layer · block_weights bf16 · bf16 · kernels stock"
    name_bars(*long, ["MP-0", name])
    lines = [tick.get_text().split("\n") for tick in long[1].get_yticklabels()]
    assert lines[0] == ["MP-0"] and " ".join(lines[1]) == name
    assert len(lines[1]) == 3 and max(map(len, lines[1])) <= 44
    assert long[0].get_figheight() == pytest.approx(short[0].get_figheight() + 2 * 0.17)


def test_cells_without_a_waterfall_have_no_bar_and_without_any_there_is_no_figure() -> None:
    impossible = traced(1, {**PROFILE, "ranks": [{**RANK, "matrix_s": 0.5}]})
    figure = waterfall_figure(made([traced(), impossible]))
    assert figure is not None and [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["MP-0"]
    assert waterfall_figure(made([traced(profile=None)])) is None and waterfall_figure([]) is None
