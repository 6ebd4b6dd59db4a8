"""What the command says of itself: its version, its examples, and what is wrong with what was typed."""

from __future__ import annotations

import re
import shlex
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from experiments.trial import Outcome
from flows.cli import commands
from flows.cli.commands import app
from tasks.sweep.store import SweepStore
from tests.tasks.plan_support import SWEEP_ID, make_plan, make_trial, saved


def leaves(commands: dict[str, Any], before: str = "") -> dict[str, Any]:
    """The commands that do something, those of groups by both words: `data check`."""
    found: dict[str, Any] = {}
    for name, command in commands.items():
        below = getattr(command, "commands", None)
        found |= {f"{before}{name}": command} if below is None else leaves(below, f"{before}{name} ")
    return found


COMMANDS = leaves(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit status of the console script, and what it wrote to standard error."""
    monkeypatch.setattr(sys, "argv", ["sweep", *words])
    with pytest.raises(SystemExit) as end:
        commands.main()
    return int(end.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_use_options_that_it_has(name: str) -> None:
    command = COMMANDS[name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    examples = re.findall(r"sweep [^·.]*", (command.epilog or "").replace("Exit status", "·"))
    assert examples, "each command shows how it is used"
    for example in examples:
        words = shlex.split(example)
        shown = " ".join(words[1:3]) if " ".join(words[1:3]) in COMMANDS else words[1]
        assert shown in COMMANDS
        if shown == name:
            assert {word for word in words if word.startswith("-") and not word[1:].isdigit()} - known <= {"-"}, example


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope"], "error: nope: unknown command; `sweep --help` shows what it takes\n"),
        (["new", "worklod"], "error: worklod: unknown command; did you mean 'workload'?\n"),
        (["run"], "error: SUITE: is missing; `sweep run --help` shows what it takes\n"),
        (["new", "suite", "x"], "error: --workload: is missing; `sweep new suite --help` shows what it takes\n"),
        (["plan", "synthetic", "b"], "error: b: is more than the command takes; `sweep plan --help` shows what it takes\n"),
        (["run", "synthetic", "--nope"], "error: --nope: unknown option; `sweep run --help` shows what it takes\n"),
        (["run", "synthetic", "--repeat", "2"], "error: --repeat: unknown option; did you mean '--repeats'?\n"),
        (["run", "synthetic", "--repeats"], "error: --repeats: needs a value; write it as --repeats VALUE\n"),
        (["run", "synthetic", "--repeats", "0"], "error: --repeats: is '0'; should be at least 1\n"),
        (["run", "synthetic", "-n", "x"], "error: --repeats: is 'x'; should be a whole number\n"),
        (["run", "synthetic", "--profile-steps", "101"], "error: --profile-steps: is '101'; should be at most 100\n"),
        (["aa", "synthetic", "--minutes", "0"], "error: --minutes: is '0'; should be at least 0.01\n"),
        (
            ["new", "workload", "x", "--data", "pairz"],
            "error: --data: is 'pairz'; should be 'none' or 'classes' or 'pairs'; did you mean 'pairs'?\n",
        ),
        (["schema", "x"], "error: KIND: is 'x'; should be 'suite' or 'pools' or 'nightly' or 'campaign'\n"),
        (["plan"], "error: SUITE, --sweep: neither is given; give one of the two\n"),
        (["plan", "synthetic", "--sweep", "last"], "error: SUITE, --sweep: both are given; give one of the two\n"),
        (["publish"], "error: --to, --check, --again: one of them is needed: --to with sweeps, the others without; give sweeps and "),
        (["plan", "synthetic", "-p", "smoek"], "error: --profile: smoek: the suite synthetic has no such profile; did you mean 'smoke'? "),
        (["plan", "synthetic", "--set", "commit=nope"], "error: --set: commit: 'nope' is no commit of "),
        (["plan", "synthetic", "--budget", "99999999h"], "error: --budget: '99999999h' is more than 30 days; write it as "),
    ],
)
def test_every_error_has_one_look(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    status, text = ended(monkeypatch, capsys, *words)
    assert status == 1 and text.startswith(said) and text.count("\n") == 1, text


def test_an_early_interrupt_is_an_error_with_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan may have been written by then. typer ends with its own status, 130."""

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "request_of", interrupted)
    said = "error: interrupted; `sweep list` shows a sweep that was begun\n"
    assert ended(monkeypatch, capsys, "plan", "synthetic") == (1, said)


def test_a_version_whose_commit_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SWEEPBENCH_GIT_COMMIT", "unknown")
    status, said = ended(monkeypatch, capsys, "--version")
    assert status == 1 and said.startswith("error: SWEEPBENCH_GIT_COMMIT: 'unknown' is no commit; expected ") and said.count("\n") == 1


@pytest.mark.parametrize(
    "words", [("plan", "bridgetower", "--pool", "a100"), ("campaign", "gpu-x1", "--plan", "--pool", "a100")], ids=["plan", "campaign"]
)
def test_a_plan_says_that_its_pool_cannot_run_it_from_here(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.delenv("SWEEPBENCH_A100_ADDRESS", raising=False)
    done = CliRunner().invoke(app, [*words])
    assert done.exit_code == 0
    assert "pool a100: is not configured; set SWEEPBENCH_A100_ADDRESS" in " ".join(done.stdout.split())


def test_the_version_names_the_commit() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0 and re.match(r"sweepbench \d+\.\d+\.\d+(, commit [0-9a-f]{12}( with changes)?)?\n$", done.output)


def test_a_comparison_of_fewer_than_two_sweeps_says_what_to_do() -> None:
    def said(*words: str) -> str:
        done = CliRunner().invoke(app, ["compare", *words], env={"COLUMNS": "400"})
        assert done.exit_code == 1
        return done.output

    assert "and there is none yet: `sweep run bridgetower` makes another" in said()
    saved(make_plan([make_trial(1)]), t1=Outcome.OK)
    assert f"and there is only {SWEEP_ID}: `sweep run made_up` makes another" in said(SWEEP_ID)
    later = "made_up-20260102-000000-0000"
    SweepStore(later).save_plan(make_plan([make_trial(1, sweep_id=later)]).model_copy(update={"sweep_id": later}))
    for words in ((), ("last",), (later,), (SWEEP_ID,)):
        assert f"`sweep compare {SWEEP_ID} {later}`, for one; `sweep list` shows all 2" in said(*words), words
