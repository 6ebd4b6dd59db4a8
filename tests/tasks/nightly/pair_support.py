"""A night whose cell `none` looks changed, and trials of commits with made-up values. Nothing here is a measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.regression.definition import load_night
from experiments.trial import Outcome, TrialResult
from tasks.nightly import good_commit, night_run, pair_trials
from tasks.nightly.history import History
from tasks.nightly.night_run import NightRun, start_or_resume
from tasks.nightly.store import PAIRED, NightStore
from tasks.sweep.store import Plan, SweepStore
from tests.cli_support import ROOT
from tests.tasks.nightly.night_support import DATES, TONIGHT, trials

GOOD, BAD = "a" * 40, "b" * 40
CELL = "two · cpu · none · steps 30"
FACTS = {"git_commit": GOOD, "git_dirty": "false", "code": "c" * 16, "libraries": "one"}


class MadeUpInputs:
    """In place of checking commits out: each commit has code of its own."""

    def __init__(self, pools: object) -> None:
        self.code: Mapping[str, str] = {}

    def key_parts(self, *_: object, commit: str, **__: object) -> dict[str, str]:
        return {"code": commit[:16], "data": "none", "libraries": "one"}


def paired_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    rate: float = 95.0,
    facts: Mapping[str, str] | None = None,
    canary: float = 100.0,
) -> NightRun:
    """Night `small` after its screen: its cell's past nights at 100 samples/s on GOOD, tonight at `rate` on BAD with these facts.

    `canary`: its rate tonight, 100 before.
    """
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(ROOT / "tests" / "workloads_for_tests"))
    monkeypatch.setattr(pair_trials, "CurrentInputs", MadeUpInputs)
    monkeypatch.setattr(pair_trials, "check_commits", lambda trials: {trial.commit: "tree" for trial in trials})
    monkeypatch.setattr(good_commit, "resolve", lambda commit: commit)
    definition = load_night("small").model_copy(update={"pairs": [3, 5, 8], "looks": [4]})
    nights = NightStore(definition.nightly)
    claimed, _ = nights.claim(TONIGHT, 600.0)
    run = start_or_resume(definition, nights, claimed, SweepStore(claimed.sweep_id), [])
    run.plan = run.plan.model_copy(update={"git": {"commit": BAD, "dirty": False, "checked": True}})
    before, tonight = History(), History()
    for entry in run.night.cells:
        if entry.role in ("history", "canary"):
            moved = entry.name == CELL
            mine = {**FACTS, "git_commit": BAD, **({"code": "d" * 16} if entry.role == "history" else {}), **(facts or {})}
            now = rate if moved else canary if entry.role == "canary" else 100.0
            for history, dates, value, known in ((before, DATES, 100.0, FACTS), (tonight, [TONIGHT], now, mine)):
                made = trials(entry.cell, dates, role=entry.role, rate=value, noise=0.002, facts=known)
                history.add(replace(trial, cell=entry.cell) for trial in made)
    monkeypatch.setattr(night_run, "tonight", lambda *_: tonight)
    run.past = before
    measure(run)
    return run


def measure(
    run: NightRun, rates: Mapping[str, float] | None = None, *, noise: float = 0.002, change: Callable[[Any], dict[str, Any]] | None = None
) -> list[str]:
    """End every trial of the plan that has no result: those of a commit at its rate. Returns their commits, in order.

    `change`: trial -> what its result has otherwise.
    """
    ended = []
    for trial in run.plan.trials:
        if run.sweep.result(trial.key) is not None:
            continue
        rate = (rates or {}).get(trial.commit or "", 100.0)
        value = rate * float(np.exp(noise * np.random.default_rng(trial.index).normal()))
        made = {"key": trial.key, "attempt": 1, "outcome": Outcome.OK, "started_at": 0.0, "finished_at": 10.0}
        made |= {"environment": {"host": "node-1"}, "summary": {"throughput": value, "peak_memory_bytes": 2**30}}
        run.sweep.trial_dir(trial.key).mkdir(parents=True, exist_ok=True)
        run.sweep.save_result(TrialResult.model_validate({**made, **(change(trial) if change else {})}))
        ended.append(trial.commit or "")
    return ended


def measured_with(run: NightRun, rates: Mapping[str, float], noise: float = 0.002) -> Callable[[Plan], None]:
    """What a night's flow does with a plan that has more trials."""

    def go_on(plan: Plan) -> None:
        run.plan = plan
        run.sweep.save_plan(plan)
        measure(run, rates, noise=noise)

    return go_on


def sides(run: NightRun) -> str:
    """The sides of the plan's pairs in the order in which they run: A is the good commit."""
    return "".join("A" if trial.commit == GOOD else "B" for trial in run.plan.trials if trial.labels["night.role"] == PAIRED)
