"""The look after the last whole round of a sweep that ran out of time in the middle of one."""

from __future__ import annotations

import pytest

from experiments.stats.interim_looks import Look
from tasks.sweep.last_look import with_last_look
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
