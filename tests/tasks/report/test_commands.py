"""The command that runs a sweep again: of one cell, and with more repeats."""

from __future__ import annotations

import pytest

from tasks.report.commands import reproduce, with_repeats
from tests.tasks.cell_support import row

TRIAL = row({"pool": "a b", "clip": None, "fused": True, "rate": 0.5}).trial
ONLY = "--only clip=null --only fused=true --only rate=0.5"


def test_one_cell_replaces_what_was_selected() -> None:
    command = "sweep run s --only pool=x --only=clip=1 --profile full --repeats 3"
    assert reproduce(TRIAL, command) == f"sweep run s --profile full --repeats 3 --only 'pool=a b' {ONLY}"
    assert reproduce(TRIAL, "sweep night n --only pool=x") == "sweep night n --only pool=x"
    assert reproduce(TRIAL, "sweep run 'broken") == "sweep run 'broken"
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
