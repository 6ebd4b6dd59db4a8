"""Figure: the race."""

from __future__ import annotations

from matplotlib.figure import Figure

from experiments.trial import Outcome
from tasks.report.figures.race import race_figure
from tests.tasks.race_support import changed, made_race, race_rows

EVERYONE = (0, 1, 2, 3)


def names(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_who_is_left_has_a_name_and_who_dropped_out_a_mark() -> None:
    rows = race_rows([100, 99, 50, 40], [EVERYONE] * 3, sd=0.01)
    figure = race_figure(made_race(rows))
    assert figure is not None
    left = [name for name in names(figure) if name.startswith("MP-")]
    assert sorted(left) == ["MP-0", "MP-1"]
    assert "dropped out: surely behind (2)" in names(figure)
    [axes] = figure.axes
    assert axes.get_xlabel() == "round" and axes.get_ylabel() == "throughput, % of the leader"
    leader = next(line for line in axes.lines if line.get_label() == left[0])
    assert leader.get_ydata()[-1] == 100.0


def test_there_is_none_before_two_rounds_or_without_a_race() -> None:
    assert race_figure(None) is None
    assert race_figure(made_race(race_rows([100, 99, 50, 40], [EVERYONE]))) is None
    failed = changed(race_rows([100, 99, 50, 40], [EVERYONE]), 3, 1, rate=None, outcome=Outcome.CRASHED)
    assert race_figure(made_race(failed)) is None
