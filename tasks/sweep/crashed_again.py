"""Trials that crashed run again, as `sweep resume --crashed` asks: what made them crash was mended, and was neither code nor data.

A changed file of those has a trial run again by itself, under another key.
"""

from __future__ import annotations

import time
from dataclasses import replace

from cluster.trial_layout import CRASHED
from experiments.config.errors import ConfigError
from experiments.trial import Outcome, TrialResult
from tasks.sweep.store import Plan, Retried, SweepStore, readable_result
from tasks.sweep.trial_record import keep_aside
from tasks.sweep.what_is_left import Left, what_is_left


def left_with_crashed(store: SweepStore, plan: Plan) -> Left:
    """What is left of the sweep once they are put back, of which nothing is done yet: whatever refuses that comes first.

    Raises ConfigError where none crashed, LaterJournal as `what_is_left`.
    """
    left, crashed = what_is_left(store, plan), {result.key for result in _crashed(store, plan)}
    rest = crashed | {trial.key for trial in left.rest}
    done = [(trial, result) for trial, result in left.done if trial.key not in crashed]
    return replace(left, done=done, rest=[trial for trial in plan.trials if trial.key in rest])


def crashed_again(store: SweepStore, plan: Plan) -> Plan:
    """The plan, which notes them; their records are kept aside, so they are to do.

    Raises ConfigError where none crashed, SweepBusy, OSError.
    """
    crashed = _crashed(store, plan)
    noted = {(one.key, one.attempt) for one in plan.retried}  # by a command that died before it put their records aside
    new = [result for result in crashed if (result.key, result.attempt) not in noted]
    asked = [Retried(key=result.key, attempt=result.attempt, reason=result.reason or "", at=time.time()) for result in new]
    plan = plan.model_copy(update={"retried": [*plan.retried, *asked]})
    with store.lease():
        store.save_plan(plan)  # first: whatever ends this, the plan tells of them
        for result in crashed:
            keep_aside(store.trial_dir(result.key), CRASHED)
    return plan


def _crashed(store: SweepStore, plan: Plan) -> list[TrialResult]:
    results = (readable_result(store, trial.key) for trial in plan.trials)
    crashed = [result for result in results if result is not None and result.outcome is Outcome.CRASHED]
    if not crashed:
        raise ConfigError.one("--crashed", None, "", f"no trial of {store.sweep_id} crashed", "leave it out")
    return crashed
