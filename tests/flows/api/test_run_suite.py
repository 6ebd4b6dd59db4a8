"""`sweepbench.run`: what it asks for, what it says, and how it ends. The sweep's process is a stand-in."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import sweepbench as sb
from experiments.config.paths import runs_root
from flows.api import run_suite as module
from tasks.sweep.store import Plan, SweepStore

Started = list[Plan]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Plans of which the process was to be started; each ends with status 0."""
    plans: Started = []

    def follow(command: Any, say: Any) -> tuple[int, str]:
        assert command[1:4] == ["-m", "flows.cli", "resume"]
        plans.append(SweepStore(command[4]).load_plan())
        return 0, "done"

    monkeypatch.setattr(module, "_follow", follow)
    return plans


def test_options_are_those_of_sweep_run(started: Started) -> None:
    sweep = sb.run("synthetic", profile="full", set={"steps": 50}, only={"width": 64}, repeats=3, pool="cpu")
    [plan] = started
    assert plan.command == "sweep run synthetic --profile full --pool cpu --set steps=50 --only width=64 --repeats 3"
    assert [(trial.parameters["steps"], trial.parameters["width"]) for trial in plan.trials] == [(50, 64)] * 3
    assert sweep.id == plan.sweep_id and not sweep.ended


def test_a_list_of_values_and_a_budget(started: Started) -> None:
    sb.run("synthetic", profile="full", only={"width": [64, 256]}, budget="10m", until_decided=True)
    [plan] = started
    assert plan.decide is not None and (plan.decide.budget_s, plan.decide.until_decided) == (600.0, True)
    assert {trial.parameters["width"] for trial in plan.trials} == {64, 256}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"set": {"stepz": 5}}, "did you mean 'steps'"),
        ({"profile": "nope"}, "nope"),
        ({"only": {"width": 5}}, "width"),
        ({"pool": "moon"}, "moon"),
        ({"repeats": 0}, "repeats: is 0; 1 or more"),
        ({"budget": "soon"}, "budget"),
        ({"budget": "10m", "repeats": 3}, "repeats"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(started: Started, options: dict[str, Any], said: str) -> None:
    with pytest.raises(sb.UserError, match=said):
        sb.run("synthetic", **{"profile": "full", **options})
    assert started == [] and not list(runs_root().glob("synthetic-*"))


def test_a_sweep_that_did_not_come_to_its_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_follow", lambda command, say: (1, "the disk is full"))
    with pytest.raises(sb.RunError, match=r"sweep synthetic-.* did not come to its end: the disk is full; `sweep resume synthetic-"):
        sb.run("synthetic", profile="smoke")


def test_failed_trials_are_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_follow", lambda command, say: (2, "1 trial crashed"))
    assert sb.run("synthetic", profile="smoke").suite == "synthetic"


def test_what_the_process_prints_is_told_line_by_line() -> None:
    told: list[str] = []
    code = "import sys; print('one'); print(' two', file=sys.stderr); sys.exit(3)"
    assert module._follow([sys.executable, "-u", "-c", code], told.append) == (3, "two")
    assert told == ["one", " two"]
    assert module._follow([sys.executable, "-c", ""], None) == (0, "it ended without a word")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """This process has Python's own handler of SIGINT, also where it was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_passed_on_and_raised_again(interruptible: None) -> None:
    """The process says that it is ready; the interrupt is raised where its line is read, as Ctrl-C would be."""
    told: list[str] = []
    waits = "signal.signal(signal.SIGINT, signal.SIG_DFL); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])"
    code = f"import signal; {waits}; print('ready', flush=True); signal.sigwait([signal.SIGINT]); print('stopped')"

    def say(line: str) -> None:
        told.append(line)
        if line == "ready":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        module._follow([sys.executable, "-c", code], say)
    assert told == ["ready", "stopped"]
