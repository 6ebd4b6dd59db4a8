"""What a sweep without time left is cut to, and that nothing of it is lost."""

from __future__ import annotations

from experiments.stats.interim_looks import Look
from experiments.trial import Outcome
from tasks.sweep.cut import cut, restored
from tasks.sweep.store import DecideSettings
from tests.tasks.plan_support import make_plan, make_trial, saved

PLAN = make_plan([make_trial(number) for number in (1, 2, 3, 4)])


def keys(trials: list) -> list[int]:  # type: ignore[type-arg]
    return [int(trial.key, 16) for trial in trials]


def test_trials_without_a_result_are_cut_and_come_back_in_their_order() -> None:
    store = saved(PLAN, t1=Outcome.OK, t3=Outcome.DOES_NOT_FIT)
    left = cut(store, PLAN)
    assert (keys(left.trials), keys(left.cut)) == ([1, 3], [2, 4])
    assert restored(left) == PLAN
    store.save_plan(left)
    assert restored(store.load_plan()) == PLAN, "the plan's file holds both"


def test_what_the_infrastructure_ended_is_cut_only_when_it_counts_as_lost() -> None:
    store = saved(PLAN, t1=Outcome.OK, t2=Outcome.INFRA, t3=Outcome.CANCELLED, t4=Outcome.CRASHED)
    assert cut(store, PLAN) == PLAN
    assert (keys(cut(store, PLAN, lost=True).trials), keys(cut(store, PLAN, lost=True).cut)) == ([1, 4], [2, 3])


def test_trials_that_time_ended_before_they_measured_are_cut_unless_an_earlier_attempt_counts() -> None:
    store = saved(PLAN, t1=Outcome.OK, t2=Outcome.CANCELLED, t3=Outcome.CANCELLED, t4=Outcome.OK)
    left = cut(store, PLAN, begun={trial.key for trial in PLAN.trials[2:]})
    assert (keys(left.trials), keys(left.cut)) == ([1, 2, 4], [3])


def test_a_plan_of_which_nothing_was_run_stays_whole() -> None:
    assert cut(saved(PLAN), PLAN) == PLAN


def test_a_trial_that_was_cut_and_planned_again_is_there_once() -> None:
    """As after an early `sweep resume --budget`, which planned the round again of which nothing was run."""
    store = saved(PLAN, t1=Outcome.OK, t2=Outcome.OK)
    left = cut(store, PLAN)
    grown = left.model_copy(update={"trials": [*left.trials, PLAN.trials[2]]})
    assert keys(restored(grown).trials) == [1, 2, 3, 4]
    assert keys(cut(store, restored(grown)).cut) == [3, 4]


def test_what_was_cut_before_is_kept() -> None:
    store = saved(PLAN, t1=Outcome.OK)
    first = cut(store, PLAN.model_copy(update={"trials": PLAN.trials[:3]}))
    again = cut(store, first.model_copy(update={"trials": [PLAN.trials[0], PLAN.trials[3]]}))
    assert keys(again.cut) == [2, 3, 4] and restored(again) == PLAN


def test_a_cut_in_the_middle_of_a_round_looks_at_the_rounds_before_it() -> None:
    trials = [make_trial(1), make_trial(2), make_trial(3, repeat=2), make_trial(4, repeat=2), make_trial(5, repeat=3)]
    plan = make_plan(trials, decide=DecideSettings(budget_s=60.0, until_decided=False))
    ended = dict.fromkeys(("t1", "t2", "t3", "t4"), Outcome.OK)
    found = cut(saved(plan, **ended), plan).decide
    assert found is not None and found.looks == [Look(round=2, spent=0.75)]
