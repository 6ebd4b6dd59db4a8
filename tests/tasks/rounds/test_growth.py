"""Which plans grow, by how much at most, and the time that a resumed sweep has used."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome
from tasks.rounds.growth import growth, most_trials, seconds_run
from tasks.sweep.aa_plan import one_more_pair
from tasks.sweep.store import AaSettings, DecideSettings, Plan, SweepStore
from tests.tasks.plan_support import make_plan, make_result, make_suite, make_trial, saved


def test_pairs_are_added_to_an_aa_sweep_alone() -> None:
    assert growth(make_plan([make_trial(1)])) is None
    assert growth(make_plan([make_trial(1)], aa=AaSettings(pairs=1))) is one_more_pair


def test_what_trials_took_so_far_counts_as_time() -> None:
    plan = make_plan([make_trial(number) for number in (1, 2, 3, 4)])
    store = SweepStore(plan.sweep_id)
    store.save_plan(plan)
    assert seconds_run(store, plan) == 0.0
    for trial, outcome, began in zip(plan.trials, (Outcome.OK, Outcome.CRASHED, Outcome.OK), (500.0, 0.0, 30.0), strict=False):
        store.save_result(make_result(trial, outcome, started_at=1.7e9 + began, finished_at=1.7e9 + began + 20.0))
    assert seconds_run(store, plan) == pytest.approx(60.0), "the flow was away between two of them"


def test_what_ran_side_by_side_counts_once_whichever_pools_these_are() -> None:
    """Pools of one machine take turns, those of several do not."""
    plan = make_plan([make_trial(number, pool=pool) for number, pool in enumerate(("cpu", "gpu", "cpu", "gpu"), 1)])
    store = SweepStore(plan.sweep_id)
    store.save_plan(plan)
    for trial, (began, ended) in zip(plan.trials, ((0.0, 20.0), (5.0, 45.0), (10.0, 30.0), (60.0, 75.0)), strict=True):
        store.save_result(make_result(trial, started_at=1.7e9 + began, finished_at=1.7e9 + ended))
    assert seconds_run(store, plan) == 60.0, "45 s in which one or two ran, and 15 s"


# --- how many trials there may be in the end


def rounds_of_three(rounds: int, last: int = 3, **changes: object) -> Plan:
    """Rounds of three cells, the last one of `last`."""
    counts = [*([3] * (rounds - 1)), last]
    trials = [make_trial(number, repeat=repeat) for repeat, count in enumerate(counts, 1) for number in range(1, count + 1)]
    return make_plan(trials, **changes)


@pytest.mark.parametrize(
    ("rounds", "last", "settings", "most"),
    [
        (1, 3, {}, None),  # nothing has run: nobody knows how many rounds fit
        (1, 3, {"most": 5}, 15),
        (2, 3, {"expected_rounds": 8}, 24),
        (4, 2, {"expected_rounds": 8}, 11 + 4 * 2),
        (4, 2, {"expected_rounds": 4}, 11),
    ],
)
def test_by_the_rounds_there_is_time_for(rounds: int, last: int, settings: dict[str, int], most: int | None) -> None:
    assert most_trials(rounds_of_three(rounds, last, decide=DecideSettings(budget_s=60.0, **settings))) == most  # type: ignore[arg-type]


def test_never_more_than_the_suites_limit() -> None:
    settings = DecideSettings(budget_s=60.0, expected_rounds=900)
    assert most_trials(rounds_of_three(2, decide=settings, suite=make_suite(limit=100))) == 100


def test_pairs_are_counted_and_what_is_planned_whole_does_not_grow() -> None:
    assert most_trials(rounds_of_three(1, aa=AaSettings(pairs=20, minutes=5.0))) == 40
    assert most_trials(rounds_of_three(1)) is None


def test_what_was_cancelled_takes_none_of_the_time_since_it_runs_again() -> None:
    plan = make_plan([make_trial(1), make_trial(2), make_trial(3)])
    store = saved(plan)
    for trial, outcome, at in zip(plan.trials, (Outcome.OK, Outcome.CANCELLED, Outcome.INFRA), (0.0, 100.0, 200.0), strict=True):
        store.save_result(make_result(trial, outcome, started_at=at, finished_at=at + 10.0 + at / 100))
    assert seconds_run(store, plan) == pytest.approx(10.0 + 12.0)
