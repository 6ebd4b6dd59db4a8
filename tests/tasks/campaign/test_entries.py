"""What a campaign expects of a sweep."""

from __future__ import annotations

import pytest

from experiments.spec.campaign import CampaignSweep
from experiments.trial import Outcome
from tasks.campaign.entries import Entry
from tests.tasks.plan_support import make_plan, make_trial, saved

NEVER = float("inf")


@pytest.mark.parametrize(
    ("to_do", "round_s", "own_s", "least_s"),
    [(1, 0.0, NEVER, 60.0), (0, 120.0, NEVER, 120.0), (1, 120.0, NEVER, 60.0), (1, 30.0, NEVER, 30.0), (0, 120.0, 90.0, NEVER)],
)
def test_what_is_left_fits_from_the_time_on_that_its_shortest_part_takes(to_do: int, round_s: float, own_s: float, least_s: float) -> None:
    plan = make_plan([make_trial(1), make_trial(2, repeat=2)])
    saved(plan, t1=Outcome.OK, t2=Outcome.OK)  # a minute each
    spec = CampaignSweep(suite="made_up", to="docs/results/page")
    entry = Entry(spec, plan, is_new=False, left_s=own_s, to_do=plan.trials[:to_do], next_round_s=round_s)
    assert entry.fits(NEVER) == entry.fits(least_s) == (least_s < NEVER) and not entry.fits(min(least_s, 1e6) - 0.1)


def test_of_what_is_done_nothing_fits_in_any_time() -> None:
    plan = make_plan([make_trial(1)])
    saved(plan, t1=Outcome.OK)
    entry = Entry(CampaignSweep(suite="made_up", to="docs/results/page"), plan, is_new=False, left_s=NEVER)
    assert not entry.fits(NEVER) and not entry.runs(NEVER)
