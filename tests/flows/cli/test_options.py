"""Options of `sweep run` that are short for a parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.commands import app
from tasks.sweep import plan as planning


def test_profile_steps_sets_the_parameter_of_every_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Any] = []
    real = planning.make_plan

    def plan_and_end(*arguments: Any, **named: Any) -> Any:
        planned.append(real(*arguments, **named)[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(planning, "make_plan", plan_and_end)
    CliRunner().invoke(app, ["run", "bridgetower", "--profile", "smoke", "--profile-steps", "3"])
    (plan,) = planned
    assert {trial.parameters["profile_steps"] for trial in plan.trials} == {3}
    assert "--set profile_steps=3" in plan.command, "the command that runs it again traces too"


@pytest.mark.parametrize("steps", ["0", "101"])
def test_profile_steps_out_of_range_is_refused(steps: str) -> None:
    done = CliRunner().invoke(app, ["run", "bridgetower", "--profile-steps", steps])
    assert done.exit_code == 2 and "--profile-steps" in done.output


def test_what_nobody_gave_is_asked_for_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "300")
    run = ["run", "winoground", "--profile", "smoke"]
    done = CliRunner().invoke(app, run)
    told = " ".join(done.output.split())
    assert done.exit_code == 1 and not (tmp_path / "runs").exists()
    for name in ("dataset", "clip_weights", "bridgetower_weights"):
        assert f"{name}: is not set" in told and f"--set {name}=" in told, told
    assert CliRunner().invoke(app, ["plan", *run[1:]]).exit_code == 0, "the matrix can be looked at"
    only = CliRunner().invoke(app, [*run, "--only", "family=clip"])
    assert "clip_weights" in only.output and "bridgetower_weights" not in only.output
