"""The chart's geometry: where values, bands and intervals stand, and what happens where there is little to draw."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.stats.verdict import Verdict
from tasks.nightly.store import CellVerdict
from tasks.site.chart import HEIGHT, WIDTH, Chart, draw_chart
from tasks.site.series import Points
from tasks.site.sparkline import sparkline
from tests.tasks.site.site_support import alarm, day, verdict
from tests.tasks.site.test_series import series


def points_of(*items: CellVerdict) -> Points:
    return series("throughput", *((night, "main", item) for night, item in enumerate(items))).points(range(len(items)))


def drawn(*items: CellVerdict, days: list[int] | None = None, marks: list[tuple[int, str]] | None = None) -> Chart:
    at = np.array(days or range(len(items)))
    return draw_chart("made up", points_of(*items), at, [day(1 + int(one)) for one in at], marks or [])


def paths(chart: Chart, name: str) -> list[str]:
    return re.findall(rf'<path class="{name}" d="([^"]*)"', chart.svg)


def numbers(path: str) -> NDArray[np.int_]:
    return np.array([int(text) for text in re.findall(r"-?\d+", path)])


def test_a_night_stands_by_its_date_so_that_a_missing_one_leaves_a_gap() -> None:
    chart = drawn(*[verdict()] * 3, days=[0, 1, 4])
    first, second, third = chart.x.tolist()
    assert third - second == pytest.approx(3 * (second - first), abs=2)
    assert first > 0 and third < WIDTH


def test_more_is_higher_and_everything_lies_inside() -> None:
    chart = drawn(verdict(value=100.0), verdict(value=101.0), alarm(3))
    assert chart.y[1] < chart.y[0] < chart.y[2]
    for name in ("band", "expected", "iv same", "iv slower", "grid"):
        [path] = paths(chart, name)
        assert numbers(path).min() >= 0 and numbers(path).max() <= WIDTH
    assert chart.y.min() > 0 and chart.y.max() < HEIGHT


def test_each_verdict_has_marks_and_intervals_of_its_own_and_changes_are_triangles() -> None:
    chart = drawn(verdict(), verdict(said=Verdict.UNDECIDED), alarm(3), alarm(4, 1.06))
    for name, mark in (("same", "h0"), ("undecided", "h0"), ("slower", "m-9-8h18l-9 16z"), ("faster", "m-9 8h18l-9-16z")):
        [path] = paths(chart, f"mark {name} few")
        assert path.endswith(mark) and path.count("M") == 1
        [interval] = paths(chart, f"iv {name}")
        x, low, high = numbers(interval)
        assert low > high and x in chart.x


def test_an_interval_reaches_around_its_value() -> None:
    chart = drawn(verdict(half=0.02), verdict(half=0.02))
    x, low, high, *_ = numbers(paths(chart, "iv same")[0])
    assert x == chart.x[0] and (low + high) / 2 == pytest.approx(chart.y[0], abs=2)


def test_nights_before_a_baseline_have_no_band_and_no_interval() -> None:
    chart = drawn(*[verdict(said=Verdict.UNDECIDED, ratio=None)] * 2)
    assert paths(chart, "band") == [] and paths(chart, "iv undecided") == [] and len(paths(chart, "mark undecided few")) == 1
    mixed = drawn(verdict(said=Verdict.UNDECIDED, ratio=None), verdict(), verdict())
    assert paths(mixed, "band")[0].count("M") == 1 and numbers(paths(mixed, "band")[0])[0] > mixed.x[0]


def test_a_gap_in_the_baseline_is_a_gap_in_the_band() -> None:
    chart = drawn(verdict(), verdict(said=Verdict.UNDECIDED, ratio=None), verdict())
    assert paths(chart, "band")[0].count("M") == 2


def test_an_interval_too_wide_to_show_leaves_the_values_their_room() -> None:
    narrow, wide = drawn(verdict(), alarm(2)), drawn(verdict(half=0.9), alarm(2))
    assert abs(int(wide.y[1] - wide.y[0])) > 0.4 * abs(int(narrow.y[1] - narrow.y[0]))
    assert numbers(paths(wide, "iv same")[0]).min() >= 0


def test_a_single_night_is_drawn_where_a_narrow_screen_shows_it() -> None:
    """Which shows the right half of a chart at first: at the left nothing was to be seen."""
    chart = drawn(verdict())
    assert chart.x.tolist() == [1096] and paths(chart, "band")


@pytest.mark.parametrize(("nights", "first"), [(2, 1017), (7, 623), (14, 72), (30, 72)])
def test_two_weeks_fill_the_axis_and_fewer_nights_stand_at_its_right(nights: int, first: int) -> None:
    chart = drawn(*[verdict()] * nights)
    assert (chart.x[0], chart.x[-1]) == (first, 1096)


def test_the_numbers_stand_right_of_the_plot() -> None:
    chart = drawn(verdict(), verdict(value=12_345.6))
    texts = re.findall(r'<text x="(\d+)" y="\d+">([\d.,]+)</text>', chart.svg.partition('class="xs"')[0])
    assert {int(x) for x, _ in texts} == {1148} and int(chart.x[-1]) < 1136


def test_an_accepted_change_is_a_flag_with_a_text_and_one_beyond_the_nights_is_none() -> None:
    chart = drawn(verdict(), verdict(), marks=[(1, "by <ann>"), (9, "later")])
    assert chart.svg.count('class="accepted"') == 1 and "<title>by &lt;ann&gt;</title>" in chart.svg and "later" not in chart.svg


def test_a_year_of_nights_has_at_most_eight_dates_and_a_bounded_size() -> None:
    chart = drawn(*[verdict(value=100 + night % 7) for night in range(365)])
    assert 4 <= len(re.findall(r'<text x="\d+" y="386">', chart.svg)) <= 8
    assert len(chart.svg) < 35_000


def test_numbers_along_the_axis_have_the_digits_that_tell_them_apart() -> None:
    chart = drawn(verdict(value=1000.0, ratio=None), verdict(value=1000.4, ratio=None))
    texts = re.findall(r'y="\d+">([\d.,]+)</text>', chart.svg.partition('class="xs"')[0])
    assert len(set(texts)) == len(texts) >= 3 and all("." in text and text.startswith(("999", "1,000")) for text in texts)


def test_a_sparkline_is_flat_where_nothing_that_matters_moved() -> None:
    flat = numbers(re.findall(r'd="([^"]*)"', sparkline(points_of(*[verdict(value=100 + night % 2) for night in range(9)])))[0])
    assert np.abs(flat[3::2]).max() <= 3, "1 % of an axis that spans more than 12 %"
    fell = sparkline(points_of(*[verdict()] * 5, alarm(6, 0.9)))
    assert re.search(r'class="slower" d="M116 \d+h0"', fell) and int(re.findall(r"M116 (\d+)h0", fell)[0]) > 12


@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_a_sparklines_last_dot_is_whole(ratio: float) -> None:
    """It is 6 wide, in a view of 120 x 24."""
    [(x, y)] = re.findall(r'class="\w+" d="M(\d+) (\d+)h0"', sparkline(points_of(*[verdict()] * 40, alarm(41, ratio))))
    assert 3 <= int(x) <= 117 and 3 <= int(y) <= 21


def test_a_sparkline_has_the_last_thirty_nights() -> None:
    text = sparkline(points_of(*[verdict()] * 40))
    assert text.count("l") - text.count("class") - text.count("hidden") <= 30 and len(text) < 400
    assert sparkline(points_of()) == ""
