"""A request as a command line, and what tells sweeps of one profile apart."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.sweep.request_text import asked_by, command_of, overrides_json, short_overrides
from tasks.sweep.store import Request
from tests.tasks.plan_support import make_plan, make_trial


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({}, ""),
        ({"budget_s": 60.0, "until_decided": True}, ""),
        ({"set": {"steps": 5, "compile": False, "dataset": None}}, "steps=5 compile=false dataset=null"),
        ({"only": {"precision": ["bf16", "fp32"], "fused": [True]}}, "precision=bf16,fp32 fused=true"),
        ({"pools": ["cpu", "a100"], "set": {"steps": 5}, "repeats": 3}, "steps=5 pool=cpu,a100 repeats=3"),
        ({"set": {"dataset": "/pictures/of/flowers/in/spring/by/someone"}}, "dataset=/pictures/of/flowers/in/spring/b…"),
        ({"set": {"dataset": "/pictures/of/flowers/in/spring-by"}}, "dataset=/pictures/of/flowers/in/spring-by"),
    ],
)
def test_overrides_are_a_column_of_a_table(request_: dict[str, Any], text: str) -> None:
    assert short_overrides(overrides_json(Request(suite="s", **request_)), 41) == text


def test_of_a_campaign_the_command_does_not_tell_what_was_overridden() -> None:
    request = Request(suite="s", set={"dataset": "/a b"}, only={"width": [64]})
    told = "(this sweep: --set 'dataset=/a b' --only width=64)"
    trials = [make_trial(1)]
    assert asked_by(make_plan(trials, request=request, command="sweep campaign autumn")) == f"sweep campaign autumn {told}"
    assert asked_by(make_plan(trials, command="sweep campaign autumn")) == "sweep campaign autumn"
    own = "sweep run s --profile smoke --set 'dataset=/a b' --only width=64"
    assert asked_by(make_plan(trials, request=request, command=command_of(request, "smoke"))) == own
