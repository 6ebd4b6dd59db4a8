"""For tests of commands that have nothing run: no template process starts, and no variable is set."""

from __future__ import annotations

from contextlib import nullcontext

import pytest


@pytest.fixture(autouse=True)
def _nothing_begins_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.sweep.head_start.template_ahead", lambda plan: nullcontext())
    monkeypatch.setattr("flows.runtime.command_environment.prepare_environment", lambda: None)
