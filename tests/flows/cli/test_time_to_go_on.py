"""What a campaign's run that was too short is told to be given, and which run measured nothing."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.config.errors import ConfigError
from flows.cli.campaign_time import check_holds_any, measured_nothing, own_time_to_give, time_to_go_on


def entry(least_s: float, *, unreported: bool = False, trials: int = 3, to_do: int = 1, **own: Any) -> Any:
    """Whose shortest part takes so long; infinite where nothing is left."""
    return SimpleNamespace(
        **own,
        name="a",
        least_s=lambda usual_s=0.0: least_s,
        times=lambda usual_s=0.0: {"t": least_s},
        fits=lambda left_s, usual_s=0.0: least_s <= min(left_s, 1e7),
        runs=lambda left_s, usual_s=0.0: unreported or least_s <= left_s,
        unreported=unreported,
        plan=SimpleNamespace(trials=range(trials)),
        to_do=range(to_do),
    )


@pytest.mark.parametrize(("budget_s", "longer"), [(109.0, None), (108.0, "2m"), (99.0, "2m")])
def test_a_run_has_ten_seconds_less_for_trials_than_it_is_given(budget_s: float, longer: str | None) -> None:
    assert time_to_go_on([entry(99.0), entry(900.0)], budget_s) == longer
    if longer is None:
        check_holds_any([entry(99.0)], budget_s, "--budget", "c")
    else:
        with pytest.raises(ConfigError, match=f"sweep campaign c --budget {longer}"):
            check_holds_any([entry(99.0)], budget_s, "--budget", "c")


@pytest.mark.parametrize(("least_s", "longer"), [(45.0, "1m"), (46.0, "2m"), (99.0, "2m"), (100.1, "3m")])
def test_the_time_to_give_is_a_tenth_more_than_expected_and_the_reports_in_whole_minutes(least_s: float, longer: str) -> None:
    assert time_to_go_on([entry(least_s)], 20.0) == longer


def test_a_run_that_came_to_nothing_is_to_be_longer_than_it_was() -> None:
    """Although what is left is expected to fit."""
    assert time_to_go_on([entry(100.0)], 300.0) is None
    assert time_to_go_on([entry(100.0)], 300.0, in_vain=True) == "6m", "1.1 times as long, and the report"
    assert time_to_go_on([entry(600.0)], 300.0, in_vain=True) == "12m"


@pytest.mark.parametrize(
    ("key", "budget_s", "left_s", "least_s", "asks"),
    [
        ("per_run", 3600.0, 54.5, 50.0, "1m"),
        ("per_run", None, 55.0, 50.0, "2m"),
        ("per_run", None, 50.0, 55.0, "2m"),
        ("budget", 300.0, 54.5, 50.0, "6m"),  # 245.5 s of which it has had
        ("budget", 300.0, 300.0, 50.0, "6m"),
    ],
)
def test_the_time_to_give_in_the_file_is_a_tenth_more_than_was_not_enough(
    key: str, budget_s: float | None, left_s: float, least_s: float, asks: str
) -> None:
    short = entry(least_s, left_s=left_s, own_limit=key, spec=SimpleNamespace(budget_s=budget_s))
    done = entry(math.inf, left_s=math.inf)
    assert own_time_to_give([short, done], left_s + 10.0) == [f"`{key}: {asks}` of a"]
    assert own_time_to_give([short, done], left_s + 9.9) == [], "a longer run gives it more"
    assert own_time_to_give([short, entry(20.0, left_s=math.inf)], left_s + 10.0) == [], "a longer run gives the other one more"


def test_where_nothing_is_left_no_time_is_told() -> None:
    assert time_to_go_on([entry(math.inf)], 20.0) is None and time_to_go_on([entry(math.inf)], 20.0, in_vain=True) is None


@pytest.mark.parametrize(
    ("before", "after", "nothing"),
    [
        (entry(1.0, to_do=2), entry(1.0, to_do=2), True),
        (entry(1.0, to_do=2), entry(1.0, to_do=1), False),
        (entry(1.0, to_do=0), entry(1.0, trials=6, to_do=3), True),  # another round was added, of which none was run
        (entry(1.0, to_do=0), entry(1.0, trials=6, to_do=2), False),
        (entry(1.0, unreported=True), entry(1.0), False),
    ],
)
def test_a_run_measured_nothing_where_as_many_trials_are_done_and_no_report_was_due(before: Any, after: Any, nothing: bool) -> None:
    assert measured_nothing([entry(5.0), before], [entry(5.0), after]) is nothing
