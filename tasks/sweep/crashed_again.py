"""Trials that crashed run again, as `sweep resume --crashed` asks: what made them crash was mended, and was neither code nor data.

A changed file of those has a trial run again by itself, under another key.
"""

from __future__ import annotations

import time

from cluster.trial_layout import CRASHED
from experiments.config.errors import ConfigError
from experiments.trial import Outcome
from tasks.sweep.store import Plan, Retried, SweepStore, readable_result
from tasks.sweep.trial_record import keep_aside


def crashed_again(store: SweepStore, plan: Plan) -> Plan:
    """The plan, which notes them; their records are kept aside, so they are to do.

    Raises ConfigError where none crashed, SweepBusy, OSError.
    """
    results = (readable_result(store, trial.key) for trial in plan.trials)
    crashed = [result for result in results if result is not None and result.outcome is Outcome.CRASHED]
    if not crashed:
        raise ConfigError.one("--crashed", None, "", f"no trial of {store.sweep_id} crashed", "leave it out")
    asked = [Retried(key=result.key, attempt=result.attempt, reason=result.reason or "", at=time.time()) for result in crashed]
    plan = plan.model_copy(update={"retried": [*plan.retried, *asked]})
    with store.lease():
        store.save_plan(plan)  # first: whatever ends this, the plan tells of them
        for result in crashed:
            keep_aside(store.trial_dir(result.key), CRASHED)
    return plan
