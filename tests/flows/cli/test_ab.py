"""`sweep ab`: its options, its comment, and what is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.config.paths import runs_root
from flows.cli import ab_comment
from flows.cli import run_sweep as cli_run_sweep
from flows.cli.commands import app
from flows.cli.options import err, out
from tasks.report import ab_summary
from tasks.sweep.store import Plan, SweepStore

WORDS = "ab injected_slowdown=0 injected_slowdown=0.3 --suite synthetic --profile smoke"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Plan, Any]]:
    """Plans that were to be run and where their comparison was to be printed; none is run."""
    plans: list[tuple[Plan, Any]] = []

    def run(plan: Plan, page: Any, *_: Any) -> int:
        plans.append((plan, page))
        return 3

    monkeypatch.setattr(cli_run_sweep, "run_sweep", run)
    return plans


def test_the_plan_is_kept_before_it_runs_and_the_status_is_the_sweeps(started: list[tuple[Plan, Any]]) -> None:
    done = CliRunner().invoke(app, [*WORDS.split(), "--pool-wait", "7"])
    assert done.exit_code == 3 and "A/B: B (injected_slowdown=0.3) against A (injected_slowdown=0), 1 cell of synthetic" in done.stderr
    ((plan, page),) = started
    assert page is out and plan.ab is not None and plan.decide is not None
    assert (plan.request.pool_wait_s, plan.decide.budget_s, len(plan.trials)) == (7, 1200.0, 2)
    assert SweepStore(plan.sweep_id).load_plan() == plan


def test_the_comment_goes_to_a_file_or_alone_to_standard_output(
    started: list[tuple[Plan, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ab_summary, "pull_request_comment", lambda folder: "the comment\n")
    file = tmp_path / "comment.md"
    assert CliRunner().invoke(app, [*WORDS.split(), "--markdown", str(file)]).exit_code == 3
    assert file.read_text() == "the comment\n"
    done = CliRunner().invoke(app, [*WORDS.split(), "--markdown", "-"])
    assert done.stdout == "the comment\n" and started[1][1] is err


def test_the_comment_of_a_sweep_that_ran_nothing(started: list[tuple[Plan, Any]]) -> None:
    done = CliRunner().invoke(app, [*WORDS.split(), "--markdown", "-"])
    plan = started[0][0]
    assert done.stdout.startswith("**B (injected\\_slowdown=0.3) against A (injected\\_slowdown=0)")
    assert "| cpu · fp32 · width 128 | to do | to do |" in done.stdout
    assert f"- command: `{plan.command}` (sweep `{plan.sweep_id}`)" in done.stdout


def test_a_comment_that_cannot_be_written_changes_no_status(
    started: list[tuple[Plan, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, store: SweepStore) -> None:
        raise OSError(28, "No space left on device", name)

    monkeypatch.setattr("flows.cli.ab.write_comment", fail)
    done = CliRunner().invoke(app, [*WORDS.split(), "--markdown", str(tmp_path / "c.md")])
    assert done.exit_code == 3 and "No space left" in done.stderr and "sweep report" in done.stderr and started
    assert ab_comment.STDOUT == "-"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ab main", "B"),
        ("ab main env:default --suite synthetic", "two of one kind"),
        (f"{WORDS} --budget soon", "is not a duration"),
        (f"{WORDS} --markdown /no/such/folder/file.md", "--markdown"),
        ("ab env:nope env:default --suite synthetic --profile smoke", "A: environment: unknown environment 'nope'"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(started: list[tuple[Plan, Any]], words: str, said: str) -> None:
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code != 0 and said in done.output and started == []
    assert not runs_root().exists() or not list(runs_root().glob("*/plan.json"))
