"""Figure: a bar for each cell, as long as its mean step and split into parts."""

from __future__ import annotations

import pytest

from tasks.report.figures.decomposition import COLOURS, decomposition_figure
from tasks.report.sections.step_decomposition import PART_NAMES
from tests.tasks.cell_support import made, row, workers

SHARES = {"data_wait_share": 0.1, "h2d_share": 0.05, "forward_backward_share": 0.6, "optimizer_share": 0.2}
STEPS = {"measured_steps": 10, "samples": 80}  # at 100 samples/s a step of 80 ms


def test_parts_add_up_to_the_mean_step_time() -> None:
    figure = decomposition_figure(made([row(workers(0), 100.0, summary={**SHARES, **STEPS}), row(workers(1), 100.0)]))
    assert figure is not None
    [axes] = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["MP-0"], "the other cell knows no parts"
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == pytest.approx([8.0, 4.0, 48.0, 16.0, 4.0]) and sum(widths) == pytest.approx(80.0)
    assert [bar.get_x() for bar in axes.patches] == pytest.approx([0.0, 8.0, 12.0, 60.0, 76.0])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(PART_NAMES)
    assert len(set(COLOURS)) == len(PART_NAMES)


def test_timers_that_overlap_leave_no_rest() -> None:
    figure = decomposition_figure(made([row(workers(0), 100.0, summary={**SHARES, **STEPS, "forward_backward_share": 0.9})]))
    assert figure is not None and figure.axes[0].patches[-1].get_width() == 0.0
    low, high = figure.axes[0].get_xlim()
    longest = sum(bar.get_width() for bar in figure.axes[0].patches)
    assert low == 0 and 1.02 * longest < high < 1.1 * longest, "a bar that ends in a part without width ends within the axis too"


def test_inference_has_no_backward_pass_and_no_optimiser() -> None:
    shares = {**SHARES, "forward_backward_share": 0.85, "optimizer_share": 0.0}
    figure = decomposition_figure(made([row(workers(0), 100.0, summary={**shares, **STEPS, "latency_p50_s": 0.01})]))
    assert figure is not None
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["waits for host", "copy to device", "forward"]


def test_without_parts_there_is_no_figure() -> None:
    assert decomposition_figure(made([row(workers(0), 100.0)])) is None
    assert decomposition_figure([]) is None
