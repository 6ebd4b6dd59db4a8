"""Figure: differences from the reference, with the margin."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.report.figures.loss_parity import parity_figure
from tests.tasks.cell_support import gated_rows, made, row, settings, workers


def test_a_line_for_each_curve_in_percent_dashed_where_struck() -> None:
    figure = parity_figure(made(gated_rows(2.0, 2.1), settings(rows=("precision",))))
    assert figure is not None
    [axes] = figure.axes
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--"]
    assert [float(np.mean(line.get_ydata())) for line in axes.lines] == pytest.approx([0.0, 5.0])
    assert [axes.lines[0].get_xdata()[place] for place in (0, -1)] == pytest.approx([4, 116]), "middles of sixteen blocks of 120 steps"
    margin = axes.collections[0].get_paths()[0].vertices
    assert (margin[:, 1].min(), margin[:, 1].max()) == pytest.approx((-0.5, 0.5)), "percent"
    assert (margin[:, 0].min(), margin[:, 0].max()) == pytest.approx((0, 120)), "all steps"
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["margin", "MP-0 · bf16", "MP-1 · bf16"]


def test_where_nothing_was_judged_there_is_no_figure() -> None:
    rows = [row(workers(0, precision=name), losses=[2.0] * 50) for name in ("fp32", "bf16")]
    assert parity_figure(made(rows, settings(rows=("precision",)))) is None
