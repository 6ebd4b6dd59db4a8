"""Options of `sweep run` that are short for a parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cluster.journal.errors import JournalError
from cluster.pools.errors import PoolError
from experiments.config.errors import ConfigError, UserError
from flows.cli.commands import app
from flows.cli.options import clean_errors
from flows.cli.start_sweep import request_of
from flows.runtime.prefect_server import PrefectServerError
from tasks.analysis.results import ResultsError
from tasks.nightly.bisect import BisectError
from tasks.nightly.history import HistoryError
from tasks.sweep import plan as planning
from tasks.sweep.dataset import DatasetError
from tasks.sweep.store import StoreError


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


def test_a_parameter_that_is_set_twice_is_refused() -> None:
    done = CliRunner().invoke(app, ["plan", "synthetic", "--set", "steps=5", "--set", "steps=6"], env={"COLUMNS": "200"})
    assert done.exit_code == 1
    assert "--set: steps: is given twice; keep one of the two, steps=5 or steps=6" in " ".join(done.output.split())


def test_an_argument_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--set: .*is not UTF-8 text"):
        request_of("synthetic", "smoke", None, ["dataset=\udcff"], None)


@pytest.mark.parametrize("steps", ["0", "101"])
def test_profile_steps_out_of_range_is_refused(steps: str) -> None:
    done = CliRunner().invoke(app, ["run", "bridgetower", "--profile-steps", steps])
    assert done.exit_code == 2 and "--profile-steps" in done.output


def test_what_nobody_gave_is_asked_for_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "300")
    run = ["run", "winoground", "--profile", "cpu"]
    done = CliRunner().invoke(app, run)
    told = " ".join(done.output.split())
    assert done.exit_code == 1 and not (tmp_path / "runs").exists()
    for name in ("dataset", "clip_weights", "bridgetower_weights"):
        assert f"{name}: is not set" in told and f"--set {name}=" in told, told
    assert CliRunner().invoke(app, ["plan", *run[1:]]).exit_code == 0, "the matrix can be looked at"
    only = CliRunner().invoke(app, [*run, "--only", "family=clip"])
    assert "clip_weights" in only.output and "bridgetower_weights" not in only.output


def test_what_a_user_can_mend_is_a_message_and_so_is_a_bug_whose_traceback_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(typer.Exit) as ended:
        clean_errors(fail)(StoreError("there is no sweep [x]"))
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == "error: there is no sweep [x]\n"
    with pytest.raises(typer.Exit) as ended:
        clean_errors(fail)(ZeroDivisionError("of [nothing]"))
    assert ended.value.exit_code == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ZeroDivisionError: of [nothing]; this is unexpected: its traceback is in ") and said.count("\n") == 1
    for own in (typer.Exit(3), typer.Abort(), typer.BadParameter("no")):
        with pytest.raises(type(own)):
            clean_errors(fail)(own)


@pytest.mark.parametrize(
    "kind", [ConfigError, PoolError, DatasetError, StoreError, JournalError, ResultsError, PrefectServerError, BisectError, HistoryError]
)
def test_the_command_line_takes_these_for_messages(kind: type[Exception]) -> None:
    assert issubclass(kind, UserError)
