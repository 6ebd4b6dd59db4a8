"""`sweep ab --changed`: its exit status, its comment, and that nothing starts where nothing can be touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.config.paths import runs_root
from flows.cli import run_sweep as cli_run_sweep
from flows.cli.commands import app
from flows.cli.options import err, out
from flows.runtime.interrupts import TOLD_TO_END
from tasks.report import ab_changed
from tasks.sweep import touched
from tasks.sweep.store import Plan, Request, SweepStore
from tasks.sweep.touched import Change, Touched
from tests.tasks.ab_support import commits

__all__ = ["commits"]  # a fixture

pytestmark = pytest.mark.usefixtures("commits")

CPU = frozenset({"cpu"})
WORDS = ["ab", "main", "HEAD", "--changed", "--profile", "smoke"]


class Started:
    """What was to be run, and how it is to end. `asked`: what the change was looked for in."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.pages: list[Any] = []
        self.statuses: list[int] = []
        self.kept: list[Any] = []
        self.asked: list[tuple[Request, list[str]]] = []
        self.suites: list[Touched] = [Touched("synthetic", CPU, ("f.py",)), Touched("canary", CPU, ("f.py",)), Touched("bert")]

    def run(self, plan: Plan, page: Any, *_: Any) -> int:
        self.plans.append(plan)
        self.pages.append(page)
        self.kept.append(cli_run_sweep.KEEP.get())
        return self.statuses[len(self.plans) - 1]

    def between(self, request: Request, a: str, b: str, suites: list[str]) -> Change:
        self.asked.append((request, suites))
        return Change(a, b, (None, None), self.suites, ["README.md"])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    made = Started()
    monkeypatch.setattr(cli_run_sweep, "run_sweep", made.run)
    monkeypatch.setattr(touched, "change_between", made.between)
    monkeypatch.setattr(ab_changed, "pull_request_comment", lambda folder: f"of {folder.name}\n")
    return made


@pytest.mark.parametrize(
    ("statuses", "expected"), [([0, 0], 0), ([0, 4], 4), ([4, 3], 3), ([3, 2], 2), ([2, 1], 1), ([1, 0], 1), ([3, 0], 3)]
)
def test_the_worst_of_the_sweeps_counts(started: Started, statuses: list[int], expected: int) -> None:
    started.statuses = statuses
    done = CliRunner().invoke(app, [*WORDS, "--budget", "10m", "--pool-wait", "7"])
    assert done.exit_code == expected, done.output
    assert [plan.name for plan in started.plans] == ["synthetic", "canary"]
    assert [plan.request.budget_s for plan in started.plans] == [300.0, 300.0] and started.plans[0].request.pool_wait_s == 7
    assert "of 3 suites, 2 run other code in B (HEAD)" in done.stderr and "  synthetic: by f.py" in done.stderr
    assert started.asked[0][1] == [] and started.kept[0] is started.kept[1] is not None, "one Prefect server for all"
    assert cli_run_sweep.KEEP.get() is None and all(SweepStore(plan.sweep_id).exists() for plan in started.plans)


def test_nothing_touched_starts_nothing_and_is_no_failure(started: Started, tmp_path: Path) -> None:
    started.suites = [Touched("synthetic"), Touched("bert")]
    file = tmp_path / "comment.md"
    done = CliRunner().invoke(app, [*WORDS, "--markdown", str(file)])
    assert done.exit_code == 0 and started.plans == []
    assert "no trial of 2 suites runs other code" in done.stderr and file.read_text().startswith("**No trial of 2 suites runs other code")
    assert not runs_root().exists() or not list(runs_root().glob("*/plan.json"))


def test_what_is_touched_and_cannot_be_measured_is_undecided(started: Started) -> None:
    started.suites = [Touched("winoground", CPU, ("f.py",), left_out="dataset: is not set")]
    done = CliRunner().invoke(app, [*WORDS])
    assert done.exit_code == 4 and "winoground is not measured: dataset: is not set" in done.stderr
    started.suites = [Touched("new", left_out="A has no workload new to compare with")]
    assert CliRunner().invoke(app, [*WORDS]).exit_code == 0


def test_the_comment_goes_alone_to_standard_output(started: Started) -> None:
    started.statuses = [0, 0]
    done = CliRunner().invoke(app, [*WORDS, "--markdown", "-"])
    first, second = started.plans
    assert done.stdout.startswith("**Of 3 suites") and done.stdout.endswith(f"---\n\nof {first.sweep_id}\n\n---\n\nof {second.sweep_id}\n")
    assert started.pages == [err, err] and out not in started.pages


def test_none_starts_after_the_user_has_ended_one(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(plan: Plan, *_: Any) -> int:
        started.plans.append(plan)
        TOLD_TO_END.set()
        return 1

    monkeypatch.setattr(cli_run_sweep, "run_sweep", end)
    assert CliRunner().invoke(app, [*WORDS]).exit_code == 1 and len(started.plans) == 1
    TOLD_TO_END.clear()


def test_suites_may_be_named(started: Started) -> None:
    started.suites, started.statuses = [Touched("synthetic", CPU, ("f.py",))], [0]
    named = ["--suite", "synthetic", "--suite", "bert", "--only", "width=256"]
    assert CliRunner().invoke(app, [*WORDS[:-1], "full", *named]).exit_code == 0
    assert started.asked[0][1] == ["synthetic", "bert"] and [trial.axes["width"] for trial in started.plans[0].trials] == [256, 256]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*WORDS, "--only", "width=64"], "--only: is about one suite, and --changed without --suite takes all; name the suite"),
        ([*WORDS, "--set", "steps=5"], "--set: is about one suite"),
        (
            ["ab", "main", "HEAD", "--suite", "bert", "--suite", "vit"],
            "--suite: is given 2 times; name one; with --changed there may be several",
        ),
    ],
)
def test_options_that_make_no_sense_together_are_refused(started: Started, words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
    assert done.exit_code == 1 and said in done.stderr and started.plans == []
