"""Figure: the loss above RMS_t, a pair of panels for each cell."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.report.figures.loss_spikes import POINTS, _thinned, spike_figure
from tests.tasks.cell_support import made, settings, watched_row


def test_a_thinned_curve_keeps_its_peaks() -> None:
    steps, values = np.arange(20_000), np.ones(20_000)
    values[[7, 12_345]] = 9.0, -3.0
    values[100] = np.nan
    kept, shown = _thinned(steps, values)
    assert kept.size <= POINTS and {7, 12_345} <= set(kept.tolist()) and (shown.max(), shown.min()) == (9.0, -3.0)
    assert (np.diff(kept) > 0).all()


def test_the_figure_has_a_pair_of_panels_for_each_cell_with_a_tensor() -> None:
    rows = [watched_row(rule) for rule in "abcdef"] + [watched_row("g", tensors=())] + [watched_row("a", repeat=2)]
    cells = made(rows, settings(columns="update_rule", baseline={}))
    figure = spike_figure(cells)
    assert figure is not None
    shown = [axes for axes in figure.axes if axes.axison]
    assert len(shown) == len(figure.axes) == 12 and [axes.get_title() for axes in shown if axes.get_title()] == list("abcdef")
    above, beneath = shown[0], next(axes for axes in shown if axes.get_ylabel() == "RMS")
    assert above.get_ylim() == pytest.approx((0.0, 3.5 * 1.05)) and beneath.get_ylim() == pytest.approx((0.0, 4.0 * 1.08))
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["loss spike, explained by an RMS spike", "loss spike, not explained", "not judged", "RMS spike"], "each once"
    assert spike_figure(made([watched_row(tensors=())])) is None


@pytest.mark.parametrize(("count", "kept"), [(POINTS, POINTS), (POINTS + 2, POINTS // 2)])
def test_a_curve_is_thinned_only_beyond_so_many_points(count: int, kept: int) -> None:
    steps, values = _thinned(np.arange(count), np.ones(count))  # of a level part one point is both its smallest and its largest
    assert steps.size == values.size == kept
