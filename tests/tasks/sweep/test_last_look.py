"""The look after the last whole round of a sweep that ran out of time in the middle of one."""

from __future__ import annotations

import pytest

from experiments.stats.look import Look
from tasks.sweep.last_look import with_last_look, with_look_of_stopped
from tasks.sweep.store import DecideSettings, Plan
from tests.tasks.plan_support import make_plan, make_trial

ROUNDS = [make_trial(2 * repeat + cell - 2, repeat=repeat) for repeat in (1, 2, 3, 4) for cell in (1, 2)]


def cut_plan(trials: int, *, cut: int = 0, **settings: object) -> Plan:
    plan = make_plan(ROUNDS[:trials], decide=DecideSettings(budget_s=60.0, until_decided=False, **settings))  # type: ignore[arg-type]
    return plan.model_copy(update={"cut": ROUNDS[trials : trials + cut]})


@pytest.mark.parametrize(("trials", "cut", "looked"), [(7, 1, 3), (6, 2, 3), (8, 0, 4), (5, 1, 2), (4, 4, 2)])
def test_the_last_whole_round_is_looked_at(trials: int, cut: int, looked: int) -> None:
    found = with_last_look(cut_plan(trials, cut=cut)).decide
    assert found is not None and found.looks == [Look(round=looked, spent=0.75)]


@pytest.mark.parametrize(("trials", "cut"), [(3, 1), (2, 2), (1, 1)])
def test_a_single_round_is_nothing_to_look_at(trials: int, cut: int) -> None:
    plan = cut_plan(trials, cut=cut)
    assert with_last_look(plan) is plan


def test_a_look_that_was_there_stays_and_one_more_spends_what_is_left() -> None:
    early = [Look(round=2, spent=0.3)]
    found = with_last_look(cut_plan(7, cut=1, looks=early)).decide
    assert found is not None and found.looks == [*early, Look(round=3, spent=0.75)]
    late = cut_plan(7, cut=1, looks=[Look(round=3, spent=0.75)])
    assert with_last_look(late) is late


def test_a_trial_lost_in_an_early_round_does_not_hide_the_later_ones() -> None:
    plan = cut_plan(8)
    plan = plan.model_copy(update={"trials": [trial for trial in plan.trials if trial is not ROUNDS[0]], "cut": [ROUNDS[0]]})
    found = with_last_look(plan).decide
    assert found is not None and [look.round for look in found.looks] == [4]


def test_a_sweep_without_a_budget_has_no_looks() -> None:
    plan = make_plan(ROUNDS[:4])
    assert with_last_look(plan) is plan
    assert with_look_of_stopped(plan, [2]) is plan


@pytest.mark.parametrize(
    ("unfinished", "expected", "round_", "spent"),
    [
        ({4}, 4, 3, 0.75 * (3 / 4) ** 2),
        ({4}, 6, 3, 0.75 * (3 / 6) ** 2),
        ({4}, None, 3, 0.75 * (3 / 4) ** 2),  # nothing was expected: the plan's own last round is what is known
        (set(), 4, 4, 0.75),
        ({1, 4}, 4, 3, 0.75 * (3 / 4) ** 2),
    ],
)
def test_a_stop_in_a_round_has_those_before_it_looked_at_for_their_share(
    unfinished: set[int], expected: int | None, round_: int, spent: float
) -> None:
    found = with_look_of_stopped(cut_plan(8, expected_rounds=expected), unfinished).decide
    assert found is not None and [look.round for look in found.looks] == [round_]
    assert found.looks[0].spent == pytest.approx(spent)


def test_a_stop_before_the_least_rounds_are_whole_or_after_their_look_is_no_look() -> None:
    plan = cut_plan(8, least=4)
    assert with_look_of_stopped(plan, {4}) is plan
    looked = cut_plan(8, looks=[Look(round=3, spent=0.4)], expected_rounds=4)
    assert with_look_of_stopped(looked, {4}) is looked
    later = with_look_of_stopped(looked, set()).decide
    assert later is not None and later.looks == [Look(round=3, spent=0.4), Look(round=4, spent=0.75)]
