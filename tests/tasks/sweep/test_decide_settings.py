"""A sweep's budget: the command's, the suite's, and what contradicts."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.config.errors import ConfigError
from experiments.spec.schema import MOST_ROUNDS, Rounds
from tasks.sweep.decide_settings import decide_settings
from tasks.sweep.plan import make_plan
from tasks.sweep.request_text import arguments_of
from tasks.sweep.store import DecideSettings, Request
from tests.tasks.plan_support import make_suite

ROUNDS = Rounds(budget="2m", least=4, most=8)


def of(suite: dict[str, Any], **request: Any) -> DecideSettings | None:
    return decide_settings(Request(suite="made_up", **request), make_suite(**suite))


def test_the_commands_budget_wins_over_the_suites() -> None:
    assert of({}) is None
    assert of({}, budget_s=60.0) == DecideSettings(budget_s=60.0, until_decided=False, least=3, most=MOST_ROUNDS)
    assert of({"rounds": ROUNDS}) == DecideSettings(budget_s=120.0, until_decided=True, least=4, most=8)
    assert of({"rounds": ROUNDS}, budget_s=60.0) == DecideSettings(budget_s=60.0, until_decided=True, least=4, most=MOST_ROUNDS)
    assert of({"rounds": ROUNDS}, until_decided=False) == DecideSettings(budget_s=120.0, until_decided=False, least=4, most=8)


def test_no_look_before_loss_parity_has_its_seeds() -> None:
    found = of({"parity_reference": 5, "rounds": Rounds(budget="2m", most=4)})
    assert found is not None and (found.least, found.most) == (5, 5)


def test_options_that_contradict() -> None:
    with pytest.raises(ConfigError, match=r"--budget.*stands beside --repeats"):
        of({}, budget_s=60.0, repeats=3)
    with pytest.raises(ConfigError, match=r"--until-decided.*needs a budget of time"):
        of({}, until_decided=True)


def test_a_plan_with_a_budget_starts_with_one_round() -> None:
    plan, _ = make_plan(Request(suite="bridgetower", profile="smoke"))
    assert plan.decide == DecideSettings(budget_s=120.0, until_decided=True, least=3, most=8)
    assert [trial.repeat for trial in plan.trials] == [1] * 7
    fixed, _ = make_plan(Request(suite="bridgetower", profile="smoke", repeats=3))
    assert fixed.decide is None and len(fixed.trials) == 21


def test_the_command_says_the_budget() -> None:
    request = Request(suite="bert", budget_s=5400.0, until_decided=True)
    assert arguments_of(request, "smoke") == ["bert", "--profile", "smoke", "--budget", "1h30m", "--until-decided"]
