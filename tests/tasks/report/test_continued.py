"""What a sweep's command leaves out: the time that `sweep resume` gave it."""

from __future__ import annotations

import pytest

from experiments.spec.schema import Rounds
from tasks.analysis.held_time import HeldTime, HeldTrial
from tasks.report.continued import continued_text, continued_to, whole_command
from tasks.report.given_command import given_command
from tasks.sweep.store import DecideSettings, Plan, Request
from tests.tasks.plan_support import make_plan, make_suite

RUN = "sweep run made_up --profile smoke"


def plan(command: str = RUN, *, asked_s: float | None = None, rounds: Rounds | None = None, rounded: bool = True) -> Plan:
    """A plan whose trials may run for 327 s. `asked_s`: by its request; `rounds`: of its suite; not `rounded`: all planned at the start."""
    decide = DecideSettings(budget_s=327.0) if rounded else None
    request = Request(suite="made_up", budget_s=asked_s)
    return make_plan([], suite=make_suite(rounds=rounds), command=command, decide=decide, request=request)


def test_a_resume_is_told_with_the_command() -> None:
    after = "`sweep resume --budget ...`, up to 5 min of trials in all"
    assert given_command(plan()) == f"`{RUN}`, continued by {after}"
    assert continued_text(plan()) == after.replace("`", "")
    assert whole_command(plan()) == f"{RUN}, continued by {continued_text(plan())}"


@pytest.mark.parametrize(
    ("command", "asked_s", "rounds", "told"),
    [
        (f"{RUN} --budget 5m27s", None, None, None),  # all that it had was asked for
        (f"{RUN} --budget 5m26s", None, None, None),  # a budget is written to the second
        (f"{RUN} --budget 5m25s", None, None, 327.0),
        (f"{RUN} --budget=10m", None, None, None),
        (f"{RUN} --budget 1m --budget 10m", None, None, None),  # the last counts
        (RUN, 327.0, None, None),
        (RUN, 325.0, None, 327.0),
        (RUN, None, Rounds(budget="10m"), None),
        (RUN, None, Rounds(budget="2m"), 327.0),
        ("sweep campaign made_up", None, None, None),  # the same command goes on
    ],
)
def test_only_more_time_than_was_asked_for_is_told(command: str, asked_s: float | None, rounds: Rounds | None, told: float | None) -> None:
    assert continued_to(plan(command, asked_s=asked_s, rounds=rounds)) == told


def test_a_campaigns_sweep_that_a_resume_went_on_with_says_so() -> None:
    """The campaign's command alone would have given fewer trials."""
    resumed = plan("sweep campaign made_up", asked_s=60.0)
    assert resumed.decide is not None
    resumed = resumed.model_copy(update={"decide": resumed.decide.model_copy(update={"resumed": True})})
    assert given_command(resumed) == "`sweep campaign made_up`, continued by `sweep resume --budget ...`, up to 5 min of trials in all"


def test_several_runs_are_told() -> None:
    def held(*begin: str, slots: int = 1) -> HeldTime:
        return HeldTime([HeldTrial(str(number), "cpu", {part: 1.0}) for number, part in enumerate(begin)], slots)

    once, twice = held("launch", "waiting", "between"), held("launch", "between", "launch", "waiting")
    assert (once.runs, twice.runs, held("launch", "launch", slots=2).runs) == (1, 2, None), "several slots are taken side by side"
    alone = plan(rounded=False)
    assert given_command(alone, twice) == f"`{RUN}`, in 2 runs"
    assert given_command(alone, once) == given_command(alone, held("launch", "launch", slots=2)) == f"`{RUN}`"
    assert given_command(plan(), twice).endswith("`sweep resume --budget ...`, up to 5 min of trials in all; in 2 runs")


def test_a_sweep_whose_trials_were_all_planned_has_its_command_alone() -> None:
    assert given_command(plan(rounded=False)) == f"`{RUN}`" and continued_text(plan(rounded=False)) == ""
    assert whole_command(plan(rounded=False)) == RUN
