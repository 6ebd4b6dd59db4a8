"""The command that runs a sweep again: of one cell, and with more repeats."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.report.commands import anew_command, cell_command, reproduce, with_repeats
from tasks.sweep.race_settings import RaceSettings
from tasks.sweep.store import AaSettings, DecideSettings, Request
from tests.tasks.cell_support import row
from tests.tasks.plan_support import make_plan, make_suite

TRIAL = row({"pool": "a b", "clip": None, "fused": True, "rate": 0.5}).trial
ONLY = "--only clip=null --only fused=true --only rate=0.5"


def test_one_cell_replaces_what_was_selected() -> None:
    command = "sweep run s --only pool=x --only=clip=1 --profile full --repeats 3"
    assert reproduce(TRIAL, command) == f"sweep run s --profile full --repeats 3 --only 'pool=a b' {ONLY}"
    assert reproduce(TRIAL, "sweep nightly n") == "", "its cells are of several suites"
    assert reproduce(TRIAL, "sweep run 'broken") == ""
    assert reproduce(TRIAL, "sweep run s --only") == f"sweep run s --only 'pool=a b' {ONLY}", "an option without its value"


@pytest.mark.parametrize("command", ["sweep run s --pool x --pool 'a b' --profile full", "sweep run s --profile full --pool=x"])
def test_a_command_that_chooses_pools_names_the_cells_once(command: str) -> None:
    assert reproduce(TRIAL, command) == f"sweep run s --profile full --pool 'a b' {ONLY}"


@pytest.mark.parametrize(
    "old", [" --repeats 1", " -n 1", " --repeats=1", " --budget 2m --until-decided", " --no-until-decided --budget=2m", ""]
)
def test_more_repeats_replace_those_of_the_command(old: str) -> None:
    assert with_repeats(f"sweep run s{old} --set a=1", 6) == "sweep run s --set a=1 --repeats 6"


def test_what_is_no_sweep_run_has_no_command_with_more_repeats() -> None:
    assert with_repeats("sweep nightly", 3) == "" and with_repeats("sweep run 'broken", 3) == ""


def test_the_cell_of_a_campaigns_sweep_is_measured_by_what_the_campaign_asks_for_of_it() -> None:
    """Its own command goes on with the campaign's sweep, which has measured the cell."""
    of_all = {"only": {"rate": [0.5, 1.0]}, "budget_s": 60.0, "until_decided": True}
    request = Request(suite="s", profile="fast", pools=["a b"], set={"steps": 5}, **of_all)
    other = row({"pool": "a b", "clip": None, "fused": True, "rate": 1.0}).trial
    plan = make_plan([TRIAL, other, TRIAL, TRIAL], request=request, profile="fast", command="sweep campaign autumn --sweep s")
    of_campaign = plan.model_copy(update={"labels": {"sweep.campaign": "autumn"}})
    measured = f"sweep run s --profile fast --set steps=5 --repeats 3 --pool 'a b' {ONLY}"
    assert cell_command(TRIAL, of_campaign) == measured
    settings = RaceSettings(metric="throughput", direction="maximise", budget_s=60.0, minimum=0.02)
    race = plan.model_copy(update={"command": "sweep tune s", "race": settings})
    assert cell_command(TRIAL, race) == measured


@pytest.mark.parametrize("kind", [{"aa": AaSettings(pairs=1)}, {"suite": make_suite("nightly-a")}])
def test_no_command_measures_a_cell_of_a_night_or_an_aa_sweep(kind: dict[str, Any]) -> None:
    assert cell_command(TRIAL, make_plan([TRIAL], command="sweep run s", **kind)) == ""
    assert cell_command(TRIAL, make_plan([TRIAL], command="sweep run s")).startswith("sweep run s --only ")


@pytest.mark.parametrize(
    ("command", "budget_s", "more_s", "told"),
    [
        ("sweep run s --budget 5m30s --no-until-decided", 330.0, 0.0, "sweep run s --no-until-decided --budget 6m"),
        ("sweep run s --budget=6m --set a=1", 720.0, 60.0, "sweep run s --set a=1 --budget 13m"),
        ("sweep run s", 720.0, 61.0, "sweep run s --budget 14m"),  # the suite's own rounds
        ("sweep run s --repeats 3", None, 60.0, "sweep run s --repeats 3"),
        ("sweep ab main --budget 6m", 720.0, 60.0, "sweep ab main --budget 6m"),
    ],
)
def test_what_measures_a_sweep_anew_has_all_the_time_that_it_was_given_and_what_it_would_take_to_go_on(
    command: str, budget_s: float | None, more_s: float, told: str
) -> None:
    """The page of Stable Diffusion said six minutes, in which one round ends: it had twelve, and wanted six more."""
    decide = None if budget_s is None else DecideSettings(budget_s=budget_s)
    assert anew_command(make_plan([TRIAL], command=command, decide=decide), more_s) == told


def test_of_a_race_and_of_a_campaigns_sweep_all_the_time_is_in_the_command_too() -> None:
    race = RaceSettings(metric="throughput", direction="maximise", budget_s=480.0, minimum=0.02)
    assert anew_command(make_plan([TRIAL], command="sweep tune s --budget 8m", race=race), 100.0) == "sweep tune s --budget 10m"
    request = Request(suite="s", profile="fast", budget_s=360.0, until_decided=False)
    plan = make_plan([TRIAL], request=request, profile="fast", command="sweep campaign autumn", decide=DecideSettings(budget_s=720.0))
    of_campaign = plan.model_copy(update={"labels": {"sweep.campaign": "autumn"}})
    assert anew_command(of_campaign) == "sweep run s --profile fast --no-until-decided --budget 12m"
    less = of_campaign.model_copy(update={"decide": DecideSettings(budget_s=200.0)})
    assert anew_command(less, 60.0) == "sweep run s --profile fast --no-until-decided --budget 7m"
