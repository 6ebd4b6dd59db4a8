"""What a night keeps of its pools' environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.trial import Outcome
from tasks.nightly.environments import pool_environments
from tasks.nightly.store import PoolEnvironment
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved


def test_facts_of_a_pool_are_joined_and_what_is_no_property_of_it_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    trials = [make_trial(1), make_trial(2), make_trial(3, pool="h200"), make_trial(4, pool="a100"), make_trial(5, emulated=True)]
    store = saved(make_plan(trials))
    told = {"torch": "2.13.0", "cores": 2, "image": None, "git_commit": "a", "host_id": "x", "start": "warm", "tree": "y"}
    for trial, host in zip(trials, ("node-2", "node-1", "box", None, "emulated"), strict=True):
        if host:
            store.save_result(make_result(trial, environment={**told, "host": host}))
    cpu = PoolEnvironment(pool="cpu", facts={"cores": "2", "host": "node-1 / node-2", "torch": "2.13.0"})
    h200 = PoolEnvironment(pool="h200", facts={"cores": "2", "host": "box", "torch": "2.13.0"})
    assert pool_environments(store, make_plan(trials)) == [cpu, h200], "nothing ran on a100, and an emulated device is none"


def test_a_trial_that_failed_before_it_knew_its_environment_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    plan = make_plan([make_trial(1)])
    assert pool_environments(saved(plan, t1=Outcome.INFRA), plan) == []
