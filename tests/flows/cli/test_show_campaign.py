"""What `sweep campaign --plan` says that sweeps take."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from experiments.spec.campaign import CampaignSweep
from experiments.trial import Outcome
from flows.cli.show_campaign import print_entries
from tasks.campaign.entries import Entry
from tests.tasks.plan_support import make_plan, make_trial, saved


@pytest.mark.parametrize(
    ("to_do", "grows", "known", "said"),
    [
        (3, True, 3, "3 min, then up to 2 min a round"),
        (3, True, 2, "unknown for 1 trial, at least 3 min, then up to 2 min a round"),
        (3, False, 3, "3 min"),
        (0, True, 3, "up to 2 min a round"),
        (0, False, 3, "all is measured"),
    ],
)
def test_a_round_that_follows_the_trials_that_are_measured_again_is_told_too(to_do: int, grows: bool, known: int, said: str) -> None:
    """As with --again where code changed and the sweep has time for more than it had."""
    plan = make_plan([make_trial(1), make_trial(2, repeat=2), make_trial(3, repeat=2)])
    saved(plan, t1=Outcome.OK, t2=Outcome.OK, t3=Outcome.OK)  # a minute each
    expected = {trial.cell: 60.0 for trial in plan.trials[:known]}
    entry = Entry(CampaignSweep(suite="made_up", to="docs/results/page"), plan, is_new=False, left_s=600.0, expected=expected)
    text = StringIO()
    print_entries(Console(file=text, width=200), [replace(entry, to_do=plan.trials[:to_do], next_round_s=120.0 if grows else 0.0)], 600.0)
    assert f"  {said}  " in text.getvalue()
