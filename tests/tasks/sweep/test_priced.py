"""Prices in a plan: they stand in the trial, are no part of its key, and are needed where costs are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.errors import ConfigError
from experiments.price import Price
from tasks.rounds.race_plan import plan_race
from tasks.sweep.plan import check_ready, make_plan
from tasks.sweep.priced import check_priced
from tasks.sweep.store import Request, SweepStore
from tests.tasks.plan_support import make_plan as made_up
from tests.tasks.plan_support import make_suite, make_trial

EUR = Price(per_hour=1.0, per="node", units=1, currency="EUR")
REQUEST = Request(suite="synthetic", profile="smoke")


@pytest.fixture
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text("pools:\n  cpu: {device: cpu, address: embedded, price_per_hour: 0.2, price_per: node, price_currency: EUR}\n")
    monkeypatch.setenv("SWEEPBENCH_POOLS", str(path))


def test_a_price_is_kept_with_the_trial_and_changes_no_key(priced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = make_plan(REQUEST, "synthetic-20260101-000000-0000")
    assert [trial.price for trial in plan.trials] == [Price(per_hour=0.2, per="node", units=1, currency="EUR")]
    SweepStore(plan.sweep_id).save_plan(plan)
    assert SweepStore(plan.sweep_id).load_plan() == plan
    monkeypatch.delenv("SWEEPBENCH_POOLS")
    free, _ = make_plan(REQUEST, "synthetic-20260101-000000-0000")
    assert [(trial.key, trial.cell) for trial in free.trials] == [(trial.key, trial.cell) for trial in plan.trials]
    assert [trial.price for trial in free.trials] == [None]


def test_a_race_for_the_lowest_cost_needs_a_price() -> None:
    request = REQUEST.model_copy(update={"profile": "tune"})
    plan = plan_race(request, metric="cost_per_million_samples", maximise=False, budget_s=600)
    with pytest.raises(ConfigError, match=r"pools: cpu.price_per_hour: is not set, and cost_per_million_samples is made of it; give it"):
        check_ready(plan)


def test_a_race_for_the_lowest_cost_is_planned_where_a_price_is_known(priced: None) -> None:
    plan = plan_race(REQUEST.model_copy(update={"profile": "tune"}), metric="cost_per_million_samples", maximise=False, budget_s=600)
    check_ready(plan)
    assert plan.race is not None and (plan.race.metric, plan.race.direction) == ("cost_per_million_samples", "minimise")


def test_costs_in_two_currencies_have_no_ratio() -> None:
    report = make_suite().report.model_copy(update={"metric": "cost_per_million_samples"})
    usd = EUR.model_copy(update={"currency": "USD"})
    trials = [make_trial(1, price=EUR), make_trial(2, pool="gpu", price=usd)]
    plan = made_up(trials, suite=make_suite(report=report))
    with pytest.raises(ConfigError, match=r"price_currency: differs \(cpu: EUR, gpu: USD\)"):
        check_priced(plan)
    check_priced(made_up([trials[0]], suite=make_suite(report=report)))
    check_priced(made_up(trials))  # their throughput is compared
