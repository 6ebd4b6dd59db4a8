"""Figure: the suite's metric of each cell with its interval, and what ended without it."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_rgba

from experiments.trial import Outcome
from tasks.report.figures.throughput import throughput_figure
from tests.tasks.cell_support import EVEN, ROUGH, made, repeats, row, settings, workers


def test_a_bar_for_each_value_and_a_word_for_each_outcome() -> None:
    cells = made(
        [
            *repeats(workers(0), 100.0),
            *repeats(workers(1), 150.0),
            row(workers(2), None, outcome=Outcome.DOES_NOT_FIT),
            row(workers(3), None, outcome=None),
        ]
    )
    figure = throughput_figure(cells, winners=[cells[1]])
    assert figure is not None
    [axes] = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["MP-0", "MP-1", "MP-2"], "what is to do is left out"
    assert [round(bar.get_width(), 6) for bar in axes.patches] == [round(cell.estimate.value, 6) for cell in cells if cell.estimate]
    assert [bar.get_facecolor() for bar in axes.patches] == [to_rgba("#9db8d6"), to_rgba("#3b82c4")], "the winner stands out"
    assert [text.get_text().partition(" ±")[0] for text in axes.texts] == ["100.0", "150.0", "does not fit"]


@pytest.mark.parametrize(("repeat", "ends"), [((0.0, 0.01, 0.02), True), ((0.0,), False)])
def test_the_axis_tells_of_an_interval_only_where_one_is_known(repeat: tuple[float, ...], ends: bool) -> None:
    figure = throughput_figure(made([one for count in range(2) for one in repeats(workers(count), 100.0, repeat)]))
    assert figure is not None
    assert figure.axes[0].get_xlabel().endswith(", 95 % interval") == ends


def test_an_interval_ends_at_nothing_and_at_a_third_beyond_the_longest_bar() -> None:
    """Of counts, whose intervals may reach below 0; and of rates, of which one cell's trials lie far apart."""
    suite = settings(metric="loss_spikes", rows=("pool",))
    counts = [row(workers(0), value, metric="loss_spikes", repeat=at) for at, value in enumerate((0.0, 1.0, 6.0), 1)]
    for cells in (made(counts, suite), made([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0, ROUGH)])):
        figure = throughput_figure(cells)
        assert figure is not None
        estimates = [cell.estimate for cell in cells if cell.estimate]
        longest = max(one.value for one in estimates)
        drawn = [tuple(line.get_xdata()) for line in figure.axes[0].lines if line.get_linestyle() == "-"]
        assert drawn == [(max(one.low, 0.0), min(one.high, 1.3 * longest)) for one in estimates]
    assert estimates[1].high > 1.3 * longest > estimates[0].high and made(counts, suite)[0].estimate.low < 0  # type: ignore[union-attr]


def test_an_interval_that_goes_on_ends_in_an_arrow_and_not_as_if_it_ended_there() -> None:
    """On FLAVA's page intervals up to 174 and 182 samples/s both ended with a stroke at 160."""
    cells = made([*repeats(workers(0), 100.0, EVEN), *repeats(workers(1), 150.0, ROUGH)])
    figure = throughput_figure(cells)
    assert figure is not None
    marks = [line.get_marker() for line in figure.axes[0].lines if line.get_linestyle() == "None"]
    assert marks == ["|", "|", "|", ">"]


def test_without_a_winner_no_bar_stands_out() -> None:
    rows = [row(workers(count), value) for count, value in enumerate((300.0, 200.0, 250.0))]
    figure = throughput_figure(made(rows))
    assert figure is not None
    assert len({bar.get_facecolor() for bar in figure.axes[0].patches}) == 1


def test_without_a_value_there_is_no_figure() -> None:
    assert throughput_figure(made([row(workers(0), None, outcome=Outcome.CRASHED)])) is None


def test_no_value_is_cut_off_beside_long_names_of_cells() -> None:
    names = [f"setting_{letter}" for letter in "abcdefgh"]
    rows = [row({**workers(at), **dict.fromkeys(names, f"its_value_{at}")}, value) for at, value in enumerate((99.0, 100.0))]
    figure = throughput_figure(made(rows))
    assert figure is not None
    figure.draw_without_rendering()
    [axes] = figure.axes
    assert all(text.get_window_extent().x1 <= axes.get_window_extent().x1 + 1 for text in axes.texts)
    short = throughput_figure(made([row(workers(at), value) for at, value in enumerate((99.0, 100.0))]))
    assert short is not None and short.axes[0].get_xlim()[1] == pytest.approx(132.0)


def test_bytes_are_told_in_gib_as_beside_the_bars() -> None:
    rows = [one for count in (0, 1) for one in repeats(workers(count), 100.0, summary={"peak_memory_bytes": (count + 1) * 2.0**31})]
    figure = throughput_figure(made(rows, settings(metric="peak_memory_bytes")))
    assert figure is not None
    [axes] = figure.axes
    assert axes.get_xlabel().startswith("peak memory (GiB)")
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([2.0, 4.0])
    assert [text.get_text().partition(" ±")[0] for text in axes.texts] == ["2.00 GiB", "4.00 GiB"]
    assert 4.0 < axes.get_xlim()[1] < 10.0
