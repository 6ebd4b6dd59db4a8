"""From a plan to a running sweep: what begins before what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.console import Console

from flows.cli.start_sweep import start
from tasks.sweep.plan import make_plan
from tasks.sweep.store import Plan, Request, SweepStore


def test_the_template_is_begun_once_the_plan_is_saved_and_before_the_flow_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    @contextmanager
    def ahead(plan: Plan) -> Iterator[None]:
        assert SweepStore(plan.sweep_id).exists()
        done.append("template")
        yield
        done.append("ended")

    def run(plan: Plan, *_: object) -> int:
        done.append("run")
        return 3

    monkeypatch.setattr("flows.runtime.command_environment.prepare_environment", lambda: done.append("variables"))
    monkeypatch.setattr("tasks.sweep.head_start.template_ahead", ahead)
    monkeypatch.setattr("flows.cli.run_sweep.run_sweep", run)
    plan, _ = make_plan(Request(suite="synthetic", profile="smoke", repeats=1))
    assert start(plan, page=Console(quiet=True)) == 3
    assert done == ["variables", "template", "run", "ended"]
