"""What crashed is run again where that is asked for, and nothing else is; the plan tells of it."""

from __future__ import annotations

import time

import pytest

from experiments.config.errors import ConfigError
from experiments.trial import Outcome
from tasks.report.continued import ran_again
from tasks.sweep.crashed_again import crashed_again, left_with_crashed
from tasks.sweep.store import Plan, SweepBusy, SweepStore
from tasks.sweep.what_is_left import what_is_left
from tests.tasks.plan_support import make_plan, make_result, make_trial

ENDS = (Outcome.OK, Outcome.CRASHED, Outcome.DOES_NOT_FIT, Outcome.CRASHED, None)


def saved(*ends: Outcome | None) -> tuple[SweepStore, Plan]:
    """A sweep whose trials ended so; None: not yet."""
    plan = make_plan([make_trial(number) for number in range(len(ends))])
    store = SweepStore(plan.sweep_id)
    store.save_plan(plan)
    for trial, outcome in zip(plan.trials, ends, strict=True):
        if outcome is not None:
            store.save_result(make_result(trial, outcome, attempt=2, reason=None if outcome is Outcome.OK else "DataError: no folder"))
    return store, plan


def test_trials_that_crashed_are_to_do_and_their_records_are_kept() -> None:
    store, plan = saved(*ENDS)
    before = time.time()
    again = crashed_again(store, plan)
    assert store.load_plan() == again, "written first"
    crashed = [plan.trials[1], plan.trials[3]]
    assert [(one.key, one.attempt, one.reason) for one in again.retried] == [(trial.key, 2, "DataError: no folder") for trial in crashed]
    assert all(before <= one.at <= time.time() for one in again.retried)
    assert all((store.trial_dir(trial.key) / "crashed-a2" / "result.json").exists() for trial in crashed)
    left = what_is_left(store, again)
    assert [trial.key for trial, _ in left.done] == [plan.trials[0].key, plan.trials[2].key]
    assert [trial.key for trial in left.rest] == [plan.trials[1].key, plan.trials[3].key, plan.trials[4].key]
    names = " and ".join(f"{trial.name} (DataError: no folder)" for trial in crashed)
    assert ran_again(again) == [f"2 trials had crashed and ran again, as `sweep resume --crashed` asked: {names}."]
    assert ran_again(again.model_copy(update={"trials": plan.trials[:1]})) == [], "of trials that are not there nothing is said"


def test_a_command_that_died_before_it_put_records_aside_notes_no_trial_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    store, plan = saved(*ENDS)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("tasks.sweep.crashed_again.keep_aside", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        crashed_again(store, plan)
    noted = store.load_plan().retried
    assert [one.key for one in noted] == [plan.trials[1].key, plan.trials[3].key]
    again = crashed_again(store, store.load_plan())
    assert again.retried == noted
    assert all((store.trial_dir(one.key) / "crashed-a2" / "result.json").exists() for one in noted)


def test_what_is_left_with_them_is_told_before_anything_is_written() -> None:
    store, plan = saved(*ENDS)
    left = left_with_crashed(store, plan)
    assert store.load_plan() == plan and not list(store.dir.glob("trials/*/crashed-a*"))
    again = what_is_left(store, crashed_again(store, plan))
    assert (left.rest, [trial for trial, _ in left.done]) == (again.rest, [trial for trial, _ in again.done])
    assert [trial.key for trial in left.rest] == [plan.trials[number].key for number in (1, 3, 4)]


def test_a_sweep_in_which_nothing_crashed_is_refused() -> None:
    store, plan = saved(Outcome.OK, Outcome.DIVERGED)
    with pytest.raises(ConfigError, match=f"--crashed: no trial of {plan.sweep_id} crashed"):
        crashed_again(store, plan)
    with pytest.raises(ConfigError, match=f"--crashed: no trial of {plan.sweep_id} crashed"):
        left_with_crashed(store, plan)
    assert store.load_plan() == plan and ran_again(plan) == []


def test_nothing_moves_while_another_process_works_on_the_sweep() -> None:
    store, plan = saved(*ENDS)
    with store.lease(), pytest.raises(SweepBusy):
        crashed_again(store, plan)
    assert not list(store.dir.glob("trials/*/crashed-a*")) and store.load_plan() == plan
