"""How much of a campaign's time is left while its sweeps wait for others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flows.cli import run_campaign
from flows.cli.run_campaign import Campaign


def test_what_a_sweep_waits_for_others_is_none_of_a_runs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_campaign, "time", SimpleNamespace(monotonic=lambda: 100.0))
    this: Any = SimpleNamespace(_time_s=60.0, began=70.0, waits=[SimpleNamespace(seconds=5.0), SimpleNamespace(seconds=8.0)])
    assert Campaign._left_s.fget(this) == 43.0  # type: ignore[attr-defined]
