"""Budgets: too short for a round, how many rounds fit, and more time for a sweep that exists."""

from __future__ import annotations

from typing import Any

import pytest

from cluster import launchers
from cluster.launchers import Launch
from experiments.config.errors import ConfigError
from experiments.spec.schema import MOST_ROUNDS
from experiments.stats.interim_looks import Look
from experiments.trial import Outcome
from tasks.rounds import budget as rounds_budget
from tasks.rounds.budget import deadline_of, gone_on_with, with_budget
from tasks.sweep import budget
from tasks.sweep.ab_settings import AbSettings
from tasks.sweep.budget import check_budget, rounds_that_fit
from tasks.sweep.store import AaSettings, DecideSettings, Plan, Request
from tasks.sweep.what_is_left import Left, what_is_left
from tests.tasks.plan_support import make_plan, make_suite, make_trial, saved
from tests.tasks.race_support import race_settings


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    known: dict[str, float] = {make_trial(1).cell: 20.0, make_trial(2).cell: 30.0}
    monkeypatch.setattr(budget, "expected_seconds", lambda plan: known)
    return known


def planned(**settings: Any) -> Plan:
    request = Request(suite="made_up", budget_s=60.0)
    return make_plan([make_trial(1), make_trial(2)], request=request, decide=DecideSettings(**{"budget_s": 60.0, **settings}))


def test_how_many_rounds_fit(history: dict[str, float]) -> None:
    assert rounds_that_fit(planned()) == (50.0, 1)
    assert rounds_that_fit(planned(budget_s=1000.0, most=8)) == (50.0, 8)
    del history[make_trial(2).cell]
    assert rounds_that_fit(planned()) is None


def test_a_budget_too_short_for_a_round_is_refused_before_anything_starts(history: dict[str, float]) -> None:
    check_budget(planned(budget_s=50.0))
    with pytest.raises(ConfigError, match=r"--budget.*49s is too short: a round of 2 trials takes about 50s here.*--budget 3m20s"):
        check_budget(planned(budget_s=49.0))
    history.clear()
    check_budget(planned(budget_s=1.0))


def test_without_history_a_round_takes_its_windows_at_least(history: dict[str, float]) -> None:
    trials = [make_trial(at).model_copy(update={"parameters": {"measure_s": 12.0}}) for at in (1, 2)]
    del history[trials[1].cell]

    def plan(budget_s: float) -> Plan:
        return make_plan(trials, request=Request(suite="made_up", budget_s=budget_s), decide=DecideSettings(budget_s=budget_s))

    check_budget(plan(32.0))  # 20 s are known, and a window of 12 s
    said = "--budget.*31s is too short: a round of 2 trials takes at least 32s here.*--budget 2m8s, or --repeats 1"
    with pytest.raises(ConfigError, match=said):
        check_budget(plan(31.0))
    history.clear()
    check_budget(plan(24.0))
    with pytest.raises(ConfigError, match="takes at least 24s"):
        check_budget(plan(23.0))


def test_more_time_for_a_sweep_with_a_budget() -> None:
    plan = planned(budget_s=100.0, most=8, until_decided=True, looks=[Look(round=3, spent=0.75)])
    store = saved(plan, t1=Outcome.OK)
    found = with_budget(store, plan, 90.0).decide
    assert found == DecideSettings(budget_s=150.0, most=MOST_ROUNDS, until_decided=True, resumed=True, looks=[Look(round=3, spent=0.75)])
    assert with_budget(store, plan, None, until_decided=False).decide == plan.decide.model_copy(update={"until_decided": False})  # type: ignore[union-attr]


def test_more_time_for_a_campaigns_sweep_adds_no_round_beyond_its_most() -> None:
    of_campaign = {"labels": {"sweep.campaign": "gpu-x1"}}
    plan = planned(budget_s=100.0, most=2).model_copy(update=of_campaign)
    store = saved(plan, t1=Outcome.OK)
    found = with_budget(store, plan, 90.0).decide
    assert found is not None and (found.most, found.budget_s, found.resumed) == (2, 150.0, True)

    second = make_trial(2, repeat=2, index=1, parameters=plan.trials[0].parameters)
    twice = plan.model_copy(update={"trials": [*plan.trials, second]})
    assert with_budget(saved(twice, t1=Outcome.OK), twice, 90.0).decide is not None, "its second round is not over"
    with pytest.raises(ConfigError, match=r"has had the 2 rounds that campaign gpu-x1 gives it at the most.*rounds\.most"):
        with_budget(saved(twice, t1=Outcome.OK, t2=Outcome.OK), twice, 90.0)

    once = make_plan([make_trial(3), make_trial(4)], **of_campaign)
    assert with_budget(saved(once, t3=Outcome.OK), once, 90.0) == once, "the time is for the other trial"
    with pytest.raises(ConfigError, match="has had the 1 round that"):
        with_budget(saved(once, t3=Outcome.OK, t4=Outcome.CRASHED), once, 90.0)
    assert with_budget(saved(once, t3=Outcome.OK, t4=Outcome.CRASHED), once, 90.0, crashed=True) == once


def test_more_time_brings_back_what_there_was_no_time_for_and_runs_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[Plan] = []
    monkeypatch.setattr(rounds_budget, "renew", lambda plan, *, say: renewed.append(plan) or plan)
    first, second = make_trial(1), make_trial(2)  # of which one ran
    again = make_trial(3, repeat=2, index=1, parameters=first.parameters)
    settings = DecideSettings(budget_s=60.0, until_decided=False)
    plan = make_plan([first, again], cut=[second], decide=settings)
    store = saved(plan, t1=Outcome.OK, t3=Outcome.OK)
    later = gone_on_with(store, 600.0)
    assert ([trial.key for trial in later.trials], later.cut) == ([first.key, second.key, again.key], [])
    assert later.decide is not None and later.decide.budget_s == 720.0, "two trials took a minute each"
    for asked in ((), (None, True)):
        kept = gone_on_with(store, *asked)
        assert (kept.trials, kept.cut) == (plan.trials, plan.cut)
    assert [len(each.trials) for each in renewed] == [3, 2, 2], "it runs under today's code, as the others do"
    assert store.load_plan() == plan, "nothing is written"


def test_only_a_plain_sweep_leaves_trials_out_for_want_of_time() -> None:
    plan = make_plan([make_trial(1), make_trial(2)], decide=DecideSettings(budget_s=60.0))
    store = saved(plan, t1=Outcome.OK)
    left = Left(rest=[plan.trials[1]])
    ends = deadline_of(store, plan, left, 60.0)  # what the other one took
    assert ends is not None and 0.0 < ends.left_s <= 60.0
    assert deadline_of(store, plan, Left(), 60.0) is None and deadline_of(store, plan, left, None) is None
    for kind in ({"race": race_settings(budget_s=600.0)}, {"ab": AbSettings(kind="commits", a="main", b="HEAD")}):
        assert deadline_of(store, plan.model_copy(update=kind), left, 60.0) is None


@pytest.mark.parametrize(("starting", "limited"), [(True, True), (False, False)])
def test_a_trial_whose_flow_died_in_its_start_is_held_to_the_time_and_one_that_runs_is_not(starting: bool, limited: bool) -> None:
    """Whether it has begun is asked before it goes on; however short the time is, what has begun does."""
    plan = make_plan([make_trial(1), make_trial(2)])
    store = saved(plan, t1=Outcome.OK)
    launchers.save(
        Launch(launcher="local", key=plan.trials[1].key, attempt=1, id="1", starting=starting), store.trial_dir(plan.trials[1].key)
    )
    left = what_is_left(store, plan)
    assert left.begun == [plan.trials[1]]
    assert (deadline_of(store, plan, left, 1.0) is not None) is limited


def test_a_sweep_without_a_budget_had_one_look_at_its_end() -> None:
    trials = [make_trial(1), make_trial(2), make_trial(3, repeat=2), make_trial(4, repeat=2)]
    plan = make_plan(trials)
    found = with_budget(saved(plan, t1=Outcome.OK), plan, 600.0).decide
    assert found == DecideSettings(resumed=True, budget_s=660.0, until_decided=True, least=2, looks=[Look(round=2, spent=0.75)])
    once = make_plan(trials[:2])
    assert with_budget(saved(once, t1=Outcome.OK), once, 600.0).decide == DecideSettings(
        resumed=True, budget_s=660.0, until_decided=True, least=3
    )


def test_what_cannot_have_a_budget() -> None:
    twins = make_plan([make_trial(1)], aa=AaSettings(pairs=1))
    with pytest.raises(ConfigError, match="is an A/A sweep"):
        with_budget(saved(twins), twins, 60.0)
    night = make_plan([make_trial(1)], suite=make_suite("nightly-regression"))
    with pytest.raises(ConfigError, match="is a night"):
        with_budget(saved(night), night, 60.0)
    plain = make_plan([make_trial(1)])
    with pytest.raises(ConfigError, match=r"has no budget of time.*--budget 25m"):
        with_budget(saved(plain), plain, None, until_decided=True)


def test_more_time_that_is_too_short_for_a_round_is_refused() -> None:
    plan = planned(until_decided=False)
    store = saved(plan, t1=Outcome.OK, t2=Outcome.OK)
    with pytest.raises(ConfigError, match="59s is too short: a round of 2 trials takes about 2m here"):
        with_budget(store, plan, 59.0)
    with pytest.raises(ConfigError, match="1m59s is too short"):
        with_budget(store, plan, 119.0)
    found = with_budget(store, plan, 120.0).decide
    assert found is not None and found.budget_s == 240.0, "the round that ran, and one that takes as long"


def test_trials_that_crashed_and_run_again_need_no_time_for_a_round_beside_them() -> None:
    plan = planned(until_decided=False)
    store = saved(plan, t1=Outcome.OK, t2=Outcome.CRASHED)
    for asked in (60.0, 59.0):  # a round takes a minute: of the cell that has a value
        found = with_budget(store, plan, asked, crashed=True).decide
        assert found is not None and found.budget_s == 120.0 + asked
    with pytest.raises(ConfigError, match="59s is too short: a round of 1 trials takes about 1m here"):
        with_budget(store, plan, 59.0)
    whole = saved(plan, t1=Outcome.OK, t2=Outcome.OK)
    with pytest.raises(ConfigError, match="59s is too short: a round of 2 trials takes about 2m here"):
        with_budget(whole, plan, 59.0, crashed=True)


def test_no_time_is_too_short_where_nothing_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(until_decided=True, looks=[Look(round=1, spent=0.75)])
    store = saved(plan, t1=Outcome.OK, t2=Outcome.OK)
    monkeypatch.setattr(rounds_budget, "undecided_of", lambda sweep: [])
    assert with_budget(store, plan, 1.0).decide is not None
