"""--budget and --until-decided: what `sweep run` and `sweep resume` make of them, what `sweep plan` says."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from experiments.trial import Outcome
from flows.cli import commands, show_plan
from flows.cli.commands import app
from flows.cli.show_plan import plan_json
from tasks.sweep import budget
from tasks.sweep.store import DecideSettings, Plan, SweepStore
from tests.tasks.plan_support import make_plan, make_trial, saved


def test_a_budget_reaches_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr(commands, "start", lambda plan, look: plans.append(plan) or 0)
    run = CliRunner().invoke(app, ["run", "bridgetower", "--profile", "smoke", "--budget", "1h30m", "--no-until-decided"])
    assert run.exit_code == 0, run.output
    [plan] = plans
    assert plan.decide == DecideSettings(budget_s=5400.0, until_decided=False, least=3)
    assert plan.command == "sweep run bridgetower --profile smoke --budget 1h30m --no-until-decided"


def test_resume_passes_on_what_it_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan([make_trial(1), make_trial(2)], decide=DecideSettings(budget_s=5.0))
    saved(plan, t1=Outcome.OK)
    monkeypatch.setattr("tasks.sweep.plan.renew", lambda plan, **_: plan)
    told: list[tuple[Plan, dict[str, object]]] = []
    monkeypatch.setattr("flows.cli.run_sweep.run_sweep", lambda plan, out, err, look, **more: told.append((plan, more)) or 0)
    assert CliRunner().invoke(app, ["resume", plan.sweep_id, "--budget", "20m", "--until-decided"]).exit_code == 0
    [(changed, more)] = told
    assert more == {"budget": "20m", "until_decided": True}
    assert changed.decide == DecideSettings(budget_s=1260.0, until_decided=True, resumed=True)
    assert SweepStore(plan.sweep_id).load_plan() == plan, "the flow saves it, once it holds the sweep"


@pytest.mark.parametrize(
    ("least", "most", "until", "said"),
    [
        (3, 8, False, "; the comparisons are judged after the last one"),
        (3, 8, True, "; from round 3 on what is decided takes part in no more, and the rest has the time, in up to 8 rounds"),
        (5, 5, True, "; 5 rounds at the most, after which the comparisons are judged"),
    ],
)
def test_a_plan_says_when_its_comparisons_are_judged(least: int, most: int, until: bool, said: str) -> None:
    plan = make_plan([make_trial(1)], decide=DecideSettings(budget_s=60.0, least=least, most=most, until_decided=until))
    assert show_plan._rounds(plan).endswith(said)


def test_a_plan_says_how_many_rounds_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan([make_trial(1), make_trial(2)], decide=DecideSettings(budget_s=60.0, most=8))
    told = {"budget_s": 60.0, "until_decided": False, "least": 3, "most": 8}
    assert plan_json(plan, [], {}, None, {})["budget"] == {**told, "round_s": None, "rounds": None}
    monkeypatch.setattr(budget, "expected_seconds", lambda plan: {trial.cell: 10.0 for trial in plan.trials})
    assert plan_json(plan, [], {}, None, {})["budget"] == {**told, "round_s": 20.0, "rounds": 3}
