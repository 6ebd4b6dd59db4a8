"""Figure: each pair of an A/A sweep with its interval."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.stats.estimate import estimate_from_log
from tasks.analysis.aa import PairComparison, analyse
from tasks.report.figures.aa_pairs import aa_figure
from tests.tasks.aa_support import aa_suite, known_t, noise, pair_rows


def test_each_pair_stands_with_its_interval_and_those_that_leave_out_0_are_red() -> None:
    a, b = noise(12)
    a[4] = 1.0
    result = analyse(pair_rows(a, b), aa_suite(), known_t())
    assert result is not None
    figure = aa_figure(result)
    assert figure is not None
    [axes] = figure.axes
    zero, covering, others = axes.lines
    assert set(zero.get_ydata()) == {0.0}
    assert covering.get_xdata().tolist() == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12] and others.get_xdata().tolist() == [5]
    assert others.get_ydata()[0] == pytest.approx(100 * (np.exp(b[4] - 1.0) - 1))
    (low, high) = axes.collections[1].get_segments()[0][:, 1]
    ratio = result.comparisons[4].ratio
    assert (low, high) == pytest.approx((100 * (ratio.low - 1), 100 * (ratio.high - 1)))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["covers 0 (11)", "does not (1)"]


def test_where_all_cover_there_is_one_colour_and_without_pairs_no_figure() -> None:
    result = analyse(pair_rows(*noise(4)), aa_suite(), lambda *_: (estimate_from_log(0.0, 0.1, 4, 2, 0.95), None))
    assert result is not None and result.comparisons[0] == PairComparison(1, estimate_from_log(0.0, 0.1, 4, 2, 0.95))
    figure = aa_figure(result)
    assert figure is not None and [text.get_text() for text in figure.legends[0].get_texts()] == ["covers 0 (4)"]
    assert aa_figure(analyse(pair_rows(*noise(2)), aa_suite())) is None
    assert aa_figure(None) is None
