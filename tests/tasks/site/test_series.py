"""Columns of a metric: what is kept of a verdict, and what is drawn of it."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.stats.verdict import Verdict
from tasks.nightly.commit_records import Pairs
from tasks.site.series import VERDICTS, Series
from tests.tasks.site.site_support import ONE, alarm, verdict


def series(metric: str, *items: tuple[int, str | None, object]) -> Series:
    made = Series(metric)
    for night, branch, item in items:
        made.add(night, branch, item)  # type: ignore[arg-type]
    return made


def test_the_expected_value_the_interval_and_the_band_are_in_the_metrics_unit() -> None:
    points = series("throughput", (0, "main", verdict(value=95.0, ratio=0.95, half=0.02))).points([0])
    assert points.unit == "samples/s" and points.value.tolist() == [95.0]
    assert points.expected.tolist() == pytest.approx([100.0])
    assert points.interval[:, 0].tolist() == pytest.approx([93.0, 97.0])
    assert points.band[:, 0].tolist() == pytest.approx([100 / 1.03, 103.0])
    assert points.change[:, 0].tolist() == pytest.approx([-0.05, -0.07, -0.03])


def test_of_a_metric_of_which_less_is_better_a_ratio_below_1_is_more() -> None:
    item = verdict(metric="peak_memory_bytes", value=2.0 * 2**30, ratio=0.8, half=0.1)
    points = series("peak_memory_bytes", (0, "main", item)).points([0])
    assert points.unit == "MiB" and points.value.tolist() == [2048.0]
    assert points.expected.tolist() == pytest.approx([0.8 * 2048])
    assert points.change[:, 0].tolist() == pytest.approx([0.25, 1 / 0.9 - 1, 1 / 0.7 - 1]), "lower end first"


def test_a_night_without_a_baseline_has_a_value_and_nothing_to_compare_it_with() -> None:
    points = series("throughput", (0, "main", verdict(said=Verdict.UNDECIDED, ratio=None))).points([0])
    assert points.value.tolist() == [100.0] and np.isnan(points.expected).all() and np.isnan(points.change).all()


def test_a_verdict_without_a_value_is_the_last_one_and_is_not_drawn() -> None:
    missed = verdict(said=Verdict.UNDECIDED, value=None, ratio=None)
    made = series("throughput", (0, "main", verdict()), (1, "main", missed))
    assert made.points([0, 1]).night.tolist() == [0]
    assert made.last_of([0, 1]) == (1, missed)


def test_points_and_last_verdicts_are_of_the_nights_that_are_asked_for() -> None:
    made = series("throughput", (0, "main", verdict(value=1.0)), (1, "next", verdict(value=2.0)), (2, "main", alarm(3)))
    assert made.points([0, 2]).value.tolist() == [1.0, 95.0] and made.points([1]).value.tolist() == [2.0]
    assert [VERDICTS[code] for code in made.points([0, 1, 2]).verdict] == [Verdict.SAME, Verdict.SAME, Verdict.SLOWER]
    found = made.last_of([1])
    assert found is not None and found[1].value == 2.0
    assert made.last_of([7]) is None


def test_where_pairs_decided_the_change_and_its_interval_are_theirs_and_the_band_is_of_past_nights() -> None:
    said = {"good": "a" * 40, "good_date": "2026-10-18", "tonight": "b" * 40, "count": 8}
    same = Pairs(**said, verdict=Verdict.SAME, ratio=1.0, low=0.99, high=1.02)  # type: ignore[arg-type]
    open_ = Pairs(**said, verdict=Verdict.UNDECIDED, ratio=1.0, low=0.9, high=1.1)  # type: ignore[arg-type]
    items = [verdict(value=95.0, ratio=0.95, half=0.02, looked=Verdict.SLOWER, pairs=pairs) for pairs in (same, open_, None)]
    points = series("throughput", *((night, "main", item) for night, item in enumerate(items))).points(range(3))
    assert points.paired.tolist() == [True, False, False]
    assert points.change.T.tolist() == [pytest.approx([0.0, -0.01, 0.02]), *[pytest.approx([-0.05, -0.07, -0.03])] * 2]
    assert points.interval.T.tolist() == [pytest.approx([0.99 * 95, 1.02 * 95]), *[pytest.approx([93.0, 97.0])] * 2]
    assert points.expected.tolist() == pytest.approx([100.0] * 3)


def test_of_a_metric_of_which_less_is_better_pairs_are_turned_too() -> None:
    told = Pairs(good="a" * 40, good_date="2026-10-18", tonight="b" * 40, count=8, verdict=Verdict.SLOWER, ratio=0.8, low=0.7, high=0.9)
    item = verdict(metric="peak_memory_bytes", value=2.0 * 2**30, ratio=0.95, half=0.1, pairs=told)
    points = series("peak_memory_bytes", (0, "main", item)).points([0])
    assert points.change[:, 0].tolist() == pytest.approx([0.25, 1 / 0.9 - 1, 1 / 0.7 - 1])
    assert points.interval[:, 0].tolist() == pytest.approx([2048 * 0.8 / 0.9, 2048 * 0.8 / 0.7])


def test_the_baselines_of_alarms_are_not_kept() -> None:
    made = series("throughput", (0, "main", alarm(1, baseline=[ONE.name] * 20)))
    assert made.alarms[0].baseline == []


def test_what_pairs_say_is_kept_by_night_also_where_nothing_changed() -> None:
    made = series(
        "throughput",
        (0, "main", verdict()),
        (1, "main", verdict(ratio=0.97, looked=Verdict.SLOWER, raw=0.98, not_paired="tonight's code is of no commit")),
        (2, "main", verdict(value=None, ratio=None)),
    )
    assert list(made.said) == [1] and made.said[1].startswith("looked 3.0 % slower, and no pair counts (tonight's code")
