"""Trials for which there was no time: taken out of a sweep's plan, so that what was measured is a whole sweep, and kept beside it."""

from __future__ import annotations

from collections.abc import Container

from tasks.sweep.last_look import with_last_look
from tasks.sweep.store import Plan, SweepStore


def cut(store: SweepStore, plan: Plan, *, lost: bool = False, begun: Container[str] = ()) -> Plan:
    """The plan without the trials that have no result; with `lost`, without those too that only the infrastructure ended. `begun`: keys of
    trials that time ended before they measured: they go too.

    They stay in its `cut`, from where `restored` brings them back, and the look that is due then is in the plan (last_look.py). A plan of
    which nothing was run stays as it is.
    """
    states = store.states(plan)
    left = [trial for trial in plan.trials if (end := states[trial.key]) is None or ((lost or trial.key in begun) and not end.final)]
    if not left or len(left) == len(plan.trials):
        return plan
    keys = {trial.key for trial in left}
    kept = [trial for trial in plan.trials if trial.key not in keys]
    return with_last_look(plan.model_copy(update={"trials": kept, "cut": [*plan.cut, *left]}))


def restored(plan: Plan) -> Plan:
    """The plan with what was cut from it, in the order in which it was planned.

    Rounds that were added later come after it. A trial that was planned again since, as in plans of earlier versions, is there once.
    """
    there = {trial.key for trial in plan.trials}
    back = [trial for trial in plan.cut if trial.key not in there]
    return plan.model_copy(update={"trials": sorted([*plan.trials, *back], key=lambda trial: (trial.repeat, trial.index)), "cut": []})
