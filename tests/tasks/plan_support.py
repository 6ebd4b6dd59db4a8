"""Plans and trials without a suite file: the one place where tests build them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.spec.schema import ReportSettings, Suite
from experiments.trial import Outcome, Trial, TrialResult, digest
from tasks.sweep.store import Plan, Request, SweepStore

SWEEP_ID = "made_up-20260101-000000-0000"
PARTS = {"code": "c1", "data": "none", "libraries": "l1", "seed": "0"}


def make_suite(name: str = "made_up", **fields: Any) -> Suite:
    """A checked suite of workload `synthetic` on pool `cpu`."""
    whole: dict[str, Any] = {
        "suite": name,
        "description": "Made up.",
        "workload": "synthetic",
        "profile": "full",
        "file": f"suites/{name}.yaml",
        "pools": {"cpu": "cpu"},
        "fixed": {},
        "axes": {"pool": ["cpu"]},
        "linked": [],
        "conditions": [],
        "exclude": [],
        "include": [],
        "sets": {},
        "only": {},
        "parity_reference": False,
        "repeats": 1,
        "limit": 2000,
        "baseline": {},
        "report": ReportSettings(rows=["pool"], columns="pool"),
        "retries": 2,
        "hang_timeout_s": 600.0,
    }
    return Suite(**{**whole, **fields})


def make_trial(number: int = 1, *, repeat: int = 1, pool: str = "cpu", sweep_id: str = SWEEP_ID, **changes: Any) -> Trial:
    """Trial `number` of a made-up sweep. Its key is the number as 16 digits; its cell follows from pool and parameters."""
    parameters = {"devices": 1, "steps": 5, "warmup_steps": 2, "seed": 0, "number": number, **changes.pop("parameters", {})}
    cell = digest({"pool": pool, **parameters})
    whole: dict[str, Any] = {
        "key": f"{number:016x}",
        "key_parts": {**PARTS, "configuration": cell, "repeat": str(repeat), "sweep": sweep_id},
        "sweep_id": sweep_id,
        "suite": "made_up",
        "workload": "synthetic",
        "pool": pool,
        "device": "cpu",
        "cell": cell,
        "repeat": repeat,
        "index": max(0, number - 1),
        "axes": {"pool": pool, "number": number},
        "parameters": parameters,
    }
    return Trial(**{**whole, **changes})


def make_plan(trials: Sequence[Trial], *, suite: Suite | None = None, **fields: Any) -> Plan:
    """A plan of these trials. `suite`: else a made-up one of the first trial's name."""
    suite = suite or make_suite(trials[0].suite if trials else "made_up")
    whole: dict[str, Any] = {
        "sweep_id": trials[0].sweep_id if trials else SWEEP_ID,
        "suite": suite,
        "request": Request(suite=suite.suite),
        "profile": "full",
        "command": f"sweep run {suite.suite}",
        "created_at": 1.7e9,
        "trials": list(trials),
    }
    return Plan(**{**whole, **fields})


def make_result(trial: Trial, outcome: Outcome = Outcome.OK, **fields: Any) -> TrialResult:
    """How an attempt of the trial ended: after 60 s, for a reason that is made up."""
    whole: dict[str, Any] = {
        "key": trial.key,
        "attempt": 1,
        "outcome": outcome,
        "reason": None if outcome is Outcome.OK else "made up",
        "started_at": 1.7e9,
        "finished_at": 1.7e9 + 60,
    }
    return TrialResult(**{**whole, **fields})


def saved(plan: Plan, **ended: Outcome) -> SweepStore:
    """The plan on disk, under $SWEEPBENCH_RUNS. `ended`: how trials ended that have, by `t` and their number: t1=Outcome.OK. They ran one
    after the other, a minute each."""
    store = SweepStore(plan.sweep_id)
    store.save_plan(plan)
    for place, trial in enumerate(plan.trials):
        outcome = ended.get(f"t{int(trial.key, 16)}")
        if outcome is not None:
            store.save_result(make_result(trial, outcome, started_at=1.7e9 + 60 * place, finished_at=1.7e9 + 60 * place + 60))
    return store
