"""Which sweeps have plans that grow while they run, and by what."""

from __future__ import annotations

from collections.abc import Callable

from tasks.sweep.aa_plan import one_more_pair
from tasks.sweep.store import Plan, SweepStore, readable_result

# (the sweep, its plan, for how long its trials have run, s) -> the plan with another round; None where it is complete
More = Callable[[SweepStore, Plan, float], Plan | None]


def growth(plan: Plan) -> More | None:
    """What adds rounds to this plan. None where all trials are planned from the start."""
    return one_more_pair if plan.aa else None


def seconds_run(store: SweepStore, plan: Plan) -> float:
    """What the trials that have ended took together, s."""
    results = (readable_result(store, trial.key) for trial in plan.trials)
    return sum(result.finished_at - result.started_at for result in results if result is not None)
