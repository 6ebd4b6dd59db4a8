"""By what a campaign knows a sweep again."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.spec.campaign import CampaignSweep
from tasks.sweep.question import asked_for
from tasks.sweep.store import Request


@pytest.mark.parametrize(
    ("request_", "same"),
    [
        ({"only": {"model": ["a", "b"]}, "set": {"x": 1, "y": [2]}}, True),
        ({"only": {"model": ["b", "a"]}, "set": {"y": [2], "x": 1}}, True),
        ({"only": {"model": ["a"]}, "set": {"x": 1, "y": [2]}}, False),
        ({"only": {"model": ["a", "b"]}, "set": {"x": "1", "y": [2]}}, False),
        ({"only": {"model": ["a", "b"]}, "set": {"x": 1}}, False),
        ({"only": {"model": ["a", "b"]}, "set": {"x": 1, "y": [2]}, "profile": "smoke"}, False),
        ({"only": {"model": ["a", "b"]}, "set": {"x": 1, "y": [2]}, "pools": ["cpu"]}, False),
        ({"only": {"model": ["a", "b"]}, "set": {"x": 1, "y": [2]}, "repeats": 9, "budget_s": 3.0}, True),
        ({"only": {"model": ["a", "b"]}, "set": {"x": True, "y": [2]}}, False),
        ({"only": {"model": ["a", "b"]}, "set": {"x": 1, "y": [2]}, "pool_wait_s": 5.0, "until_decided": True}, True),
    ],
)
def test_what_two_sweeps_ask(request_: dict[str, Any], same: bool) -> None:
    spec = CampaignSweep(suite="made_up", only={"model": ["a", "b"]}, set={"y": [2], "x": 1}, to="page")
    assert (asked_for(Request(suite="made_up", **{"profile": "full", **request_})) == asked_for(spec)) is same
