"""Figure: a bar for each trial, as long as it held its slots."""

from __future__ import annotations

import pytest

from tasks.analysis.held_time import HeldTime, HeldTrial
from tasks.report.figures.held_time import held_time_figure
from tasks.report.figures.style import MOST

PARTS = {"between": 0.5, "launch": 0.25, "imports": 0.25, "warmup": 1.0, "measured": 4.0}


def test_bars_are_in_the_order_of_the_run_and_add_up_to_the_held_time() -> None:
    held = HeldTime([HeldTrial("b", "cpu", PARTS), HeldTrial("a", "cpu", {"discarded": 2.0, "measured": 1.0})])
    figure = held_time_figure(held, {"a": "the other", "b": "the first"})
    assert figure is not None
    [axes] = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["the first", "the other"]
    groups = ["between trials", "discarded attempts", "start", "warm-up", "measured"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == groups
    by_trial = [[bar for bar in axes.patches if round(bar.get_y() + bar.get_height() / 2) == y] for y in (0, 1)]
    assert [bar.get_width() for bar in by_trial[0]] == pytest.approx([0.5, 0.0, 0.5, 1.0, 4.0])
    assert [bar.get_x() for bar in by_trial[1]] == pytest.approx([0.0, 0.0, 2.0, 2.0, 2.0])
    assert axes.get_xlabel() == "seconds; trials in the order of the run"


def test_no_more_bars_than_can_be_read_and_none_without_held_time() -> None:
    figure = held_time_figure(HeldTime([HeldTrial(str(number), "cpu", PARTS) for number in range(MOST + 1)], slots=2), {})
    assert figure is not None and len(figure.axes[0].get_yticklabels()) == MOST
    assert figure.axes[0].get_xlabel() == f"slot-seconds; trials in the order of the run; the first {MOST} of {MOST + 1} trials"
    assert held_time_figure(None, {}) is None and held_time_figure(HeldTime([]), {}) is None


@pytest.mark.parametrize(
    ("parts", "columns", "rows"),
    [
        (("between", "data", "warmup", "measured", "teardown"), 5, 1),
        (("between", "data", "warmup", "measured", "teardown", "discarded"), 5, 2),
        (("between", "data", "warmup", "no_rate"), 4, 1),  # of a name that takes the room of two
        (("between", "data", "warmup", "measured", "no_rate"), 4, 2),
        (("between", "data", "warmup", "measured", "failed", "launch", "beside", "teardown", "first_step"), 4, 3),
    ],
)
def test_the_names_of_the_groups_have_room_above_the_bars(parts: tuple[str, ...], columns: int, rows: int) -> None:
    figure = held_time_figure(HeldTime([HeldTrial("a", "cpu", dict.fromkeys(parts, 1.0))]), {})
    one_row = held_time_figure(HeldTime([HeldTrial("a", "cpu", {"measured": 1.0})]), {})
    assert figure is not None and one_row is not None
    assert figure.legends[0]._ncols == columns
    assert figure.get_figheight() - one_row.get_figheight() == pytest.approx(0.25 * (rows - 1))
