"""What a report says of a sweep that went on on another host, later, or with other code."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tasks.report.places import caution_of_places
from tests.tasks.cell_support import made, report_of
from tests.tasks.host_support import spread_over_hosts

LEAVES_OUT = (
    "Trials of one host and code without a pause of 30 minutes are compared with each other, so verdicts leave out what differs between "
    "these; a cell's own value and the order of values do not."
)


def test_one_host_and_sitting_needs_no_word() -> None:
    assert caution_of_places(made(spread_over_hosts(["aaa", "aaa"]))) == []


def test_hosts_are_named_with_their_trials() -> None:
    which = "4 trials (host id-a, from 1970-01-01 00:00 UTC) and 2 trials (host id-b, from 1970-01-02 00:01 UTC)"
    assert caution_of_places(made(spread_over_hosts(["aaa", "abb"]))) == [
        f"The trials of pool cpu differ in host: {which}. {LEAVES_OUT}",
        "Undecided since only one trial ran beside the other cell's: MP-1 and MP-0. Repeats of both on one host would compare them.",
    ]


def test_another_day_and_other_code_are_named_by_what_differs() -> None:
    rows = spread_over_hosts(["aab", "aab"])
    later = [replace(one, environment={"host_id": "x"}) for one in rows]
    [line] = caution_of_places(made(later))
    assert line.startswith(
        "The trials of pool cpu differ in time: 4 trials (from 1970-01-01 00:00 UTC) and 2 trials (from 1970-01-02 00:01"
    )
    coded = [replace(one, environment={"host_id": "x", "tree": one.environment["host_id"]}) for one in rows]
    [line] = caution_of_places(made(coded))
    assert "differ in code: 4 trials (tree id-a, from 1970-01-01 00:00 UTC) and 2 trials (tree id-b, " in line


def test_the_report_claims_nothing_of_cells_on_two_hosts_and_says_why() -> None:
    report = report_of(spread_over_hosts(["aaa", "bbb"]))
    assert report.answer is not None and report.answer.winner is None
    assert report.headline == "No clear winner: MP-1 and MP-0 are not shown to differ"
    assert "Undecided against MP-0: not measured on one host in one sitting." in report.answer.sentences
    apart = "Undecided since host or sitting differ as the cells do, so that the one cannot be told from the other: MP-1 and MP-0."
    assert f"{apart} Repeats of both on one host would compare them." in report.cautions


def test_who_is_fastest_goes_by_trials_beside_each_other_and_not_by_the_mean_of_two_hosts() -> None:
    """MP-0 is 1 % faster, and ran on the slower host; MP-1 has the higher mean."""
    rows = spread_over_hosts(["aaaab", "abbbb"] * 2, rates=[104.0, 100.0, 104.0, 100.0])
    report = report_of(rows)
    assert report.answer is not None and report.answer.best.trial.axes["dataloader_workers"] in (0, 2)
    assert report.answer.sentences[0].startswith("Best measured, though not all on one host in one sitting: MP-")


def test_pools_of_a_host_each_need_no_word() -> None:
    rows = spread_over_hosts(["aaa", "bbb"])
    gpu = [replace(one, trial=one.trial.model_copy(update={"pool": "gpu"})) for one in rows[3:]]
    assert {one.environment["host_id"] for one in gpu} == {"id-b"}
    assert not [line for line in caution_of_places(made([*rows[:3], *gpu])) if line.startswith("The trials of pool")]


def test_four_hosts_are_named_and_times_are_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        [line] = [line for line in caution_of_places(made(spread_over_hosts(["acdef", "acdef"]))) if line.startswith("The trials")]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "2 trials (host id-a, from 1970-01-01 00:00 UTC)" in line
    assert "host id-d" in line and "host id-e" not in line and " and 2 more." in line
