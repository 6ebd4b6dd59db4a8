"""What a night that was interrupted says: the command that goes on with it."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console

from flows.cli import run_night as module
from flows.cli.run_night import run_night


@pytest.mark.parametrize(
    ("budget", "pools", "words"),
    [(None, [], ""), ("90m", [], " --budget 90m"), ("2h", ["cpu", "h200"], " --budget 2h --pool cpu --pool h200")],
)
def test_the_hint_has_all_that_the_command_was_given(
    monkeypatch: pytest.MonkeyPatch, budget: str | None, pools: Sequence[str], words: str
) -> None:
    told: list[str] = []

    def interrupted(name: str, date: str, budget: str | None, pools: Sequence[str], resume: str, err: Console) -> tuple[None, None]:
        told.append(resume)
        return None, None

    monkeypatch.setattr(module, "prepare_environment", lambda: "http://nowhere/api")
    monkeypatch.setattr(module, "check_database", lambda: None)
    monkeypatch.setattr(module.prefect_api, "check", lambda server: None)
    monkeypatch.setattr(module, "_run", interrupted)
    console = Console(file=(text := StringIO()), width=200)
    assert run_night("file.yaml", "regression", "2026-11-21", budget, pools, console, console) == 1
    command = f"sweep nightly file.yaml --date 2026-11-21{words}"
    assert told == [command], "which a second Ctrl-C prints"
    assert text.getvalue().endswith(f"interrupted; go on with it: {command}\n")
