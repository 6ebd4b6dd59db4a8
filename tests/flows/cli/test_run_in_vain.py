"""A campaign's run that came to no trial says that it was too short only where nothing else explains it."""

from __future__ import annotations

from contextlib import nullcontext
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from flows.cli import run_campaign
from flows.cli.run_campaign import Campaign

TOO_SHORT = "this run measured nothing: its time was too short for a trial once it had started\n"


@pytest.mark.parametrize(
    ("status", "failed", "told_to_end", "returned", "too_short"),
    [(0, [], False, 1, True), (0, [], True, 0, False), (1, [], False, 1, True), (1, ["a"], False, 1, False), (2, ["a"], False, 2, False)],
)
def test_a_run_that_failed_or_was_told_to_end_is_not_called_too_short(
    monkeypatch: pytest.MonkeyPatch, status: int, failed: list[str], told_to_end: bool, returned: int, too_short: bool
) -> None:
    for name in ("print_entries", "prepare_environment", "print_left"):
        monkeypatch.setattr(run_campaign, name, lambda *_, **__: None)
    monkeypatch.setattr(run_campaign, "shared_templates", nullcontext)
    monkeypatch.setattr(run_campaign, "TOLD_TO_END", SimpleNamespace(is_set=lambda: told_to_end, clear=lambda: None))
    entry = SimpleNamespace(
        least_s=lambda usual_s: 20.0,
        left_s=50.1,
        fits=lambda left_s, usual_s: True,
        runs=lambda left_s, usual_s: True,
        unreported=False,
        plan=SimpleNamespace(trials=[1]),
        to_do=[1],
        name="a",
    )
    this: Any = SimpleNamespace(
        store=SimpleNamespace(lock=nullcontext),
        file=SimpleNamespace(campaign="c"),
        failed=failed,
        budget_s=60.0,
        budget="1m",
        asked="c",
        _time_s=50.0,
        _entries=lambda: [entry],
        _check_time=lambda entries: None,
        _begin_templates=lambda entries: None,
        _take_up=lambda entries: None,
        _run=lambda entries, out, err: status,
        _usual_s=lambda: 0.0,
        _go_on=lambda budget: "c",
    )
    err = Console(file=StringIO(), width=200)
    assert Campaign.run(this, err, err) == returned
    assert (err.file.getvalue() == TOO_SHORT) == too_short  # type: ignore[attr-defined]
