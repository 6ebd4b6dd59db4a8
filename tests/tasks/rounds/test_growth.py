"""Which plans grow, and the time that a resumed sweep has used."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome
from tasks.rounds.growth import growth, seconds_run
from tasks.sweep.aa_plan import one_more_pair
from tasks.sweep.store import AaSettings, SweepStore
from tests.tasks.plan_support import make_plan, make_result, make_trial


def test_pairs_are_added_to_an_aa_sweep_alone() -> None:
    assert growth(make_plan([make_trial(1)])) is None
    assert growth(make_plan([make_trial(1)], aa=AaSettings(pairs=1))) is one_more_pair


def test_what_trials_took_so_far_counts_as_time() -> None:
    plan = make_plan([make_trial(number) for number in (1, 2, 3, 4)])
    store = SweepStore(plan.sweep_id)
    store.save_plan(plan)
    assert seconds_run(store, plan) == 0.0
    for trial, outcome in zip(plan.trials, (Outcome.OK, Outcome.CRASHED, Outcome.OK), strict=False):
        store.save_result(make_result(trial, outcome, started_at=1.7e9, finished_at=1.7e9 + 20.0))
    assert seconds_run(store, plan) == pytest.approx(60.0)
