"""Figure: loss curves, smoothed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasks.report.figures.loss import _smooth, loss_figure
from tests.tasks.cell_support import gated_rows, made, row, settings, workers


def test_a_curve_for_each_cell_dashed_where_loss_parity_struck_it() -> None:
    figure = loss_figure(made(gated_rows(2.1), settings(rows=("precision",))))
    assert figure is not None
    [axes] = figure.axes
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--"]
    assert [round(float(line.get_ydata()[-1]), 9) for line in axes.lines] == [2.0, 2.1]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["fp32", "bf16"]


def test_smoothing_is_a_mean_over_a_twentieth_of_the_steps_fewer_at_the_ends() -> None:
    losses = np.arange(80.0)
    losses[40] += 5.0
    smooth = _smooth(losses)
    assert smooth[40] == pytest.approx(41.0) and smooth[43] == pytest.approx(43.0)  # 5 steps: two on each side
    assert smooth[0] == pytest.approx(1.0) and smooth[-1] == pytest.approx(78.0)
    losses[3] = math.nan
    assert _smooth(losses) is losses, "as it is where a loss is not finite"


@pytest.mark.parametrize(("steps", "label"), [(39, "training loss"), (40, "training loss (smoothed)")])
def test_a_curve_too_short_to_be_smoothed_is_not_said_to_be(steps: int, label: str) -> None:
    losses = [3.0, *[2.0] * (steps - 1)]
    figure = loss_figure(made([row(workers(0), losses=losses)]))
    assert figure is not None and figure.axes[0].get_ylabel() == label
    [line] = figure.axes[0].lines
    assert line.get_ydata()[1] == pytest.approx(2.0 if steps < 40 else 7 / 3), "of 40 steps the mean of one on each side"


def test_what_does_not_train_and_a_single_step_have_no_curve() -> None:
    assert loss_figure(made([row(workers(0), losses=[2.0])])) is None
    assert loss_figure(made([row(workers(0), losses=[2.0] * 9, summary={"latency_p50_s": 0.1})])) is None
    assert loss_figure(made([row(workers(0), losses=[2.0] * 9, summary={"service_time_p50_s": 0.1})])) is None
