"""What Prefect's page of a trial shows."""

from __future__ import annotations

from typing import Any

import pytest

from flows.runtime import artifacts
from tests.tasks.plan_support import make_result, make_trial


def test_figures_of_a_trial_have_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(artifacts, "create_table_artifact", lambda rows, **_: made.append(rows))
    summary = {"throughput": 581.46, "step_time_median_s": 0.0541, "peak_memory_bytes": 2.0**31, "settled": True, "drift": -0.046}
    trial = make_trial()
    artifacts.trial(trial, make_result(trial, summary=summary | {"made_up": 1.23456789, "eval_loss_after": None}))
    told = {row["figure"]: row["value"] for row in made[0]}
    assert told == {
        "outcome": "ok",
        "throughput": "581.5 samples/s",
        "step_time_median_s": "54.1 ms",
        "peak_memory_bytes": "2.00 GiB",
        "settled": "True",
        "drift": "-4.6 %",
        "made_up": "1.23457",
    }
