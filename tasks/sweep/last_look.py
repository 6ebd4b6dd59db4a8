"""The look at a sweep's comparisons that is due when time runs out in the middle of a round."""

from __future__ import annotations

from experiments.stats.interim_levels import next_look
from tasks.sweep.store import Plan


def with_last_look(plan: Plan) -> Plan:
    """The plan, with a look after the last round of which nothing was cut, where no look was that late.

    A sweep with a budget is looked at when no other round fits, or after each round. One that was cut in the middle of a round has
    rounds which nobody has looked at, and none of its comparisons would ever be decided. Time ended it, not what was measured, so the
    look may use what the last one may (experiments/stats/interim_levels.py).
    """
    settings = plan.decide
    if settings is None:
        return plan
    cut = {trial.repeat for trial in plan.cut}
    whole = max(({trial.repeat for trial in plan.trials} - cut), default=0)
    before = settings.looks[-1].round if settings.looks else 0
    if whole < 2 or whole <= before:
        return plan
    look = next_look(settings.looks, whole, whole)
    return plan.model_copy(update={"decide": settings.model_copy(update={"looks": [*settings.looks, look]})})
