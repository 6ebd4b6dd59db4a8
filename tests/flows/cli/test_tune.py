"""`sweep tune`: its options, and what is refused before anything is written."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.config.paths import runs_root
from flows.cli import run_sweep as cli_run_sweep
from flows.cli.commands import app
from tasks.sweep.store import Plan, SweepStore


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Plans that were to be run; none is."""
    plans: list[Plan] = []

    def run(plan: Plan, *_: Any) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setattr(cli_run_sweep, "run_sweep", run)
    return plans


def test_the_plan_is_kept_before_it_runs(started: list[Plan]) -> None:
    words = "tune synthetic --profile tune --maximise throughput --where peak_memory_bytes<=3GB --budget 2m --set steps=50 --pool-wait 7"
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0 and "race of 12 settings" in done.stderr
    (plan,) = started
    assert plan.race is not None and (plan.race.budget_s, plan.race.where[0].limit, plan.request.pool_wait_s) == (120.0, 3e9, 7)
    assert {trial.parameters["steps"] for trial in plan.trials} == {50}
    assert SweepStore(plan.sweep_id).load_plan() == plan


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--budget 2m", "--maximise, --minimise: neither is given; give one of the two, with a metric"),
        ("--budget 2m --maximise throughput --minimise peak_memory_bytes", "--maximise, --minimise: both are given; "),
        ("--maximise throughput", "--budget"),
        ("--budget soon --maximise throughput", "is not a duration"),
        ("--budget 2m --maximise speed", "unknown metric"),
        ("--budget 2m --maximise throughput --where peak_memory<=1GB", "did you mean 'peak_memory_bytes'"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(started: list[Plan], words: str, said: str) -> None:
    done = CliRunner().invoke(app, ["tune", "synthetic", "--profile", "tune", *words.split()])
    assert done.exit_code != 0 and said in done.output and started == []
    assert not runs_root().exists() or not list(runs_root().iterdir())
