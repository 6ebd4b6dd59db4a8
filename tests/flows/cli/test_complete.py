"""What a shell is told when Tab is pressed, as it asks: by the script that typer installs for zsh."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from experiments.precision import Precision
from experiments.trial import Outcome
from flows.cli.application import HELP_WIDTH, short_help
from flows.cli.commands import app
from tests.tasks.plan_support import make_plan, make_trial, saved


def completed(line: str) -> list[str]:
    """The completions of a command line that ends at the cursor."""
    return [entry.split("\t")[0] for entry in offered(line)]


def offered(line: str) -> list[str]:
    """The same with the help of each, after a tab."""
    runner = CliRunner()
    done = runner.invoke(
        app,
        [],
        env={"_SWEEP_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        prog_name="sweep",
    )
    return [entry for entry in done.output.splitlines() if entry]


def test_profiles_of_the_suite() -> None:
    assert completed("sweep run synthetic --profile ") == ["auto", "full", "smoke", "tune"]
    assert completed("sweep plan synthetic -p t") == ["tune"]


def test_settings_of_its_workload() -> None:
    names = completed("sweep run synthetic --set ")
    assert {"precision=", "steps=", "width="} <= set(names) and not any(name.partition("=")[2] for name in names)
    assert completed("sweep run synthetic --set prec") == [f"precision={name}" for name in get_args(Precision)]
    assert {"precision=fp32", "precision=fp8"} <= set(completed("sweep run synthetic --set prec"))
    assert completed("sweep run synthetic --set evaluate=") == ["evaluate=true", "evaluate=false"]
    assert completed("sweep run synthetic --set steps") == ["steps="]


def test_values_of_its_axes() -> None:
    assert completed("sweep run synthetic --only ") == ["pool=cpu", "precision=fp32", "width=64", "width=256"]
    assert completed("sweep tune synthetic -p tune --only batch") == [f"batch_size={size}" for size in (16, 32, 64, 128)]
    assert "precision=fp32" in completed("sweep ab main HEAD --suite synthetic --only ")
    assert "dataloader_workers=0" in completed("sweep ab main HEAD --only "), "bridgetower's, which it takes"


def test_trials_of_a_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    assert completed("sweep logs ") == [], "there is no sweep"
    plan = make_plan([make_trial(1), make_trial(2)])
    saved(plan, t1=Outcome.OK)
    assert completed("sweep logs ") == ["cpu/number_1/#1", "cpu/number_2/#1"]
    assert completed("sweep logs 00") == [trial.key for trial in plan.trials]


def test_what_is_wrong_completes_nothing_and_says_nothing() -> None:
    assert completed("sweep run no-such-suite --only ") == []
    assert completed("sweep run --set ") == []


@pytest.mark.parametrize(
    "line", ["sweep ", "sweep -", "sweep run synthetic -", "sweep data ", "sweep new suite --", "sweep run synthetic --set "]
)
def test_help_is_one_sentence_that_fits_beside_what_is_completed(line: str) -> None:
    helps = [entry.partition("\t")[2] for entry in offered(line)]
    assert any(helps) and all(len(text) <= HELP_WIDTH for text in helps), helps


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("print JSON", "print JSON"),
        ("Write a suite. Starts nothing.", "Write a suite"),
        ("at most so many; else as the suite says", "at most so many"),
        ("a profile, e.g. smoke", "a profile, e.g. smoke"),
        ("with --budget: no more rounds", "with --budget: no more rounds"),
        ("word " * 20, f"{'word ' * 9}…"),
    ],
)
def test_what_is_left_of_a_help(text: str, short: str) -> None:
    assert short_help(text) == short
