"""Options of `sweep run` that are short for a parameter."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

import tasks.plan
from flows.cli import app


def test_profile_steps_sets_the_parameter_of_every_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Any] = []
    real = tasks.plan.make_plan

    def plan_and_end(*arguments: Any, **named: Any) -> Any:
        planned.append(real(*arguments, **named)[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks.plan, "make_plan", plan_and_end)
    CliRunner().invoke(app, ["run", "bridgetower", "--profile", "smoke", "--profile-steps", "3"])
    (plan,) = planned
    assert {trial.parameters["profile_steps"] for trial in plan.trials} == {3}
    assert "--set profile_steps=3" in plan.command, "the command that runs it again traces too"


@pytest.mark.parametrize("steps", ["0", "101"])
def test_profile_steps_out_of_range_is_refused(steps: str) -> None:
    done = CliRunner().invoke(app, ["run", "bridgetower", "--profile-steps", steps])
    assert done.exit_code == 2 and "--profile-steps" in done.output
