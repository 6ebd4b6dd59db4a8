"""What a flow finds of a sweep's trials."""

from __future__ import annotations

from cluster import launchers
from cluster.launchers import Launch
from experiments.trial import Outcome
from tasks.sweep.plan import states
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


def test_a_later_attempt_than_the_one_that_ended_has_begun() -> None:
    """A search was cut off, and the flow that went on with it was killed: what it began still runs, and is no attempt to begin."""
    plan = make_plan([make_trial(1), make_trial(2)])
    store = saved(plan, t1=Outcome.CANCELLED, t2=Outcome.CANCELLED)
    for trial, attempt in zip(plan.trials, (2, 1), strict=True):
        launchers.save(Launch(launcher="local", key=trial.key, attempt=attempt, id="1"), store.trial_dir(trial.key))
    left = what_is_left(store, plan)
    assert (left.begun, left.rest) == ([plan.trials[0]], [plan.trials[1]])
    assert [(entry.state, entry.why) for entry in states(plan)] == [("to do", None), ("again", "ended as cancelled: made up")]
