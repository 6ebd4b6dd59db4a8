"""What a flow finds of a sweep's trials."""

from __future__ import annotations

from cluster import launchers
from cluster.launchers import Launch
from experiments.trial import Outcome
from tasks.sweep.what_is_left import what_is_left
from tests.tasks.plan_support import make_plan, make_trial, saved


def test_trials_are_done_begun_or_to_begin() -> None:
    plan = make_plan([make_trial(number) for number in range(1, 9)])
    store = saved(plan, t1=Outcome.OK, t2=Outcome.CRASHED, t5=Outcome.INFRA, t6=Outcome.CANCELLED, t7=Outcome.INFRA)
    for number in (4, 5, 6):
        trial = plan.trials[number - 1]
        launchers.save(Launch(launcher="local", key=trial.key, attempt=1, id="1"), store.trial_dir(trial.key))
    left = what_is_left(store, plan)
    assert [(int(trial.key, 16), result.outcome) for trial, result in left.done] == [(1, Outcome.OK), (2, Outcome.CRASHED)]
    assert [int(trial.key, 16) for trial in left.begun] == [4, 5]  # the 6th was told to end, the 7th never started
    assert [int(trial.key, 16) for trial in left.rest] == [3, 6, 7, 8]
