"""What a campaign expects of a sweep."""

from __future__ import annotations

from experiments.spec.campaign import CampaignSweep
from experiments.trial import Outcome
from tasks.campaign.entries import Entry
from tests.tasks.plan_support import make_plan, make_trial, saved


def test_another_round_takes_as_long_as_the_trials_of_the_last_one() -> None:
    plan = make_plan([make_trial(1), make_trial(2), make_trial(3, repeat=2)])
    saved(plan, t1=Outcome.OK, t2=Outcome.OK, t3=Outcome.OK)  # a minute each
    entry = Entry(CampaignSweep(suite="made_up", to="docs/results/page"), plan, is_new=False, left_s=600.0, grows=True)
    assert entry.round_s() == 60.0
