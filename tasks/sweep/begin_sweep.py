"""The last step before a new sweep runs: its plan is checked and saved."""

from __future__ import annotations

from experiments.config.paths import runs_root
from tasks.sweep.budget import check_budget
from tasks.sweep.plan import check_ready
from tasks.sweep.store import Plan, StoreError, SweepStore


def begin_sweep(plan: Plan) -> SweepStore:
    """Save a new plan that can run. Raises ConfigError for one that cannot, StoreError where it cannot be written."""
    check_ready(plan)
    check_budget(plan)
    store = SweepStore(plan.sweep_id)
    try:
        store.save_plan(plan)
    except OSError as error:
        raise StoreError(f"{runs_root()} cannot be written ({error.strerror}); set SWEEPBENCH_RUNS to a folder that can be") from None
    return store
