"""Which sweeps have plans that grow while they run, and by what."""

from __future__ import annotations

from collections.abc import Callable

from tasks.rounds.race_plan import one_more_heat, race_note
from tasks.sweep.aa_plan import one_more_pair
from tasks.sweep.store import Plan, SweepStore

# (the sweep, its plan, for how long its trials have run, s) -> the plan with another round; None where it is complete
More = Callable[[SweepStore, Plan, float], Plan | None]


def growth(plan: Plan) -> More | None:
    """What adds rounds to this plan. None where all trials are planned from the start."""
    if plan.aa:
        return one_more_pair
    return one_more_heat if plan.race else None


def round_note(plan: Plan) -> str:
    """What is running, for the live table: `round 3: 14 of 72 settings run`; empty where there is nothing to say."""
    return race_note(plan) if plan.race else ""


def seconds_run(store: SweepStore, plan: Plan) -> float:
    """What the trials that have ended took together, s. Raises StoreError."""
    results = (store.result(trial.key) for trial in plan.trials)
    return sum(result.finished_at - result.started_at for result in results if result is not None)
