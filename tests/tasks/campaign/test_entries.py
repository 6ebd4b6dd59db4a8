"""What a campaign expects of a sweep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.spec.campaign import CampaignSweep
from experiments.trial import Outcome
from tasks.campaign.entries import Entry, _short_of
from tasks.sweep.store import DecideSettings
from tests.tasks.plan_support import make_plan, make_trial, saved

NEVER = float("inf")


def sweep(**asks: str) -> CampaignSweep:
    return CampaignSweep.model_validate({"suite": "made_up", "to": "docs/results/page", **asks})


def entry(rounds: int, least: int, left_s: float, outcome: Outcome = Outcome.OK, **asks: str) -> Entry:
    """A sweep of which so many rounds are done, and another would take a minute."""
    trials = [make_trial(number, repeat=number, parameters={"seed": number}) for number in range(1, rounds + 1)]
    plan = make_plan(trials, decide=DecideSettings(budget_s=60.0, least=least))
    saved(plan, **{f"t{number}": outcome for number in range(1, rounds + 1)})
    return Entry(sweep(**asks), plan, is_new=False, left_s=left_s)


@pytest.mark.parametrize(
    ("to_do", "round_s", "own_s", "least_s"),
    [(1, 0.0, NEVER, 60.0), (0, 120.0, NEVER, 120.0), (1, 120.0, NEVER, 60.0), (1, 30.0, NEVER, 30.0), (0, 120.0, 90.0, NEVER)],
)
def test_what_is_left_fits_from_the_time_on_that_its_shortest_part_takes(to_do: int, round_s: float, own_s: float, least_s: float) -> None:
    plan = make_plan([make_trial(1), make_trial(2, repeat=2)])
    saved(plan, t1=Outcome.OK, t2=Outcome.OK)  # a minute each
    made = Entry(sweep(), plan, is_new=False, left_s=own_s, to_do=plan.trials[:to_do], next_round_s=round_s)
    assert made.fits(NEVER) == made.fits(least_s) == (least_s < NEVER) and not made.fits(min(least_s, 1e6) - 0.1)


def test_of_what_is_done_nothing_fits_in_any_time() -> None:
    plan = make_plan([make_trial(1)])
    saved(plan, t1=Outcome.OK)
    made = Entry(sweep(), plan, is_new=False, left_s=NEVER)
    assert not made.fits(NEVER) and not made.runs(NEVER)


@pytest.mark.parametrize(
    ("budget", "per_run", "left_s", "key"),
    [
        ("5m", None, 300.0, "budget"),
        ("5m", "2m", 120.0, "per_run"),
        ("5m", "2m", 119.9, "budget"),  # what it has had leaves less
        (None, "2m", 120.0, "per_run"),
    ],
)
def test_the_files_key_that_limits_a_sweep_is_that_of_the_shorter_time(
    budget: str | None, per_run: str | None, left_s: float, key: str
) -> None:
    spec = sweep(**{name: value for name, value in (("budget", budget), ("per_run", per_run)) if value is not None})
    assert Entry(spec, make_plan([make_trial(1)]), is_new=False, left_s=left_s).own_limit == key


@pytest.mark.parametrize(("least", "short"), [(2, False), (3, True), (4, True)])
def test_a_sweep_is_short_of_its_least_rounds_until_it_has_them(least: int, short: bool) -> None:
    assert _short_of(entry(2, least, 30.0, budget="150s"), 120.0) == ("its budget of 150s" if short else "")


@pytest.mark.parametrize(
    ("left_s", "told"), [(30.0, "its per_run of 30s"), (29.9, "its budget of 90s"), (0.0, "its budget of 90s"), (-9.0, "its budget of 90s")]
)
def test_what_keeps_a_sweep_from_its_rounds_is_the_shorter_of_its_times(left_s: float, told: str) -> None:
    """As much left of both: `per_run`."""
    assert _short_of(entry(1, 2, left_s, budget="90s", per_run="30s"), 90.0 - left_s) == told
    assert _short_of(entry(1, 2, left_s, budget="90s"), 90.0 - left_s) == "its budget of 90s"


def test_a_sweep_without_rounds_or_that_no_time_gives_another_is_short_of_nothing() -> None:
    short = entry(1, 2, 30.0, budget="90s")
    assert _short_of(replace(short, plan=short.plan.model_copy(update={"decide": None})), 60.0) == ""
    assert _short_of(entry(1, 2, 30.0, Outcome.UNSUPPORTED, budget="90s"), 60.0) == ""
