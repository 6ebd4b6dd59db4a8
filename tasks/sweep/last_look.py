"""The look at a sweep's comparisons that is due when it ends in the middle of a round: its time is over, or somebody stopped it."""

from __future__ import annotations

from collections.abc import Collection

from experiments.stats.look import Look
from experiments.stats.sequential import next_look
from tasks.sweep.store import DecideSettings, Plan


def with_last_look(plan: Plan) -> Plan:
    """The plan, with a look after the last round of which nothing was cut, where no look was that late.

    A sweep with a budget is looked at when no other round fits, or after each round. One that was cut in the middle of a round has
    rounds which nobody has looked at, and none of its comparisons would ever be decided. Time ended it, not what was measured, so the
    look may use what the last one may (experiments/stats/sequential.py).
    """
    settings = plan.decide
    whole = _last_whole(plan, {trial.repeat for trial in plan.cut})
    if settings is None or whole < 2 or whole <= _looked(settings):
        return plan
    return _with(plan, settings, next_look(settings.looks, whole, whole))


def with_look_of_stopped(plan: Plan, unfinished: Collection[int]) -> Plan:
    """The plan, with a look after the last round that is whole, where no look was that late and `least` rounds are.

    Somebody stopped the sweep, maybe because of what was to be seen, and may go on with it: so the look uses what one after that round may
    among all that were expected. `unfinished`: rounds with trials that have no final result.
    """
    settings = plan.decide
    whole = _last_whole(plan, unfinished)
    if settings is None or whole < settings.least or whole <= _looked(settings):
        return plan
    return _with(plan, settings, next_look(settings.looks, whole, max(plan.last_round, settings.expected_rounds or 0)))


def _last_whole(plan: Plan, unfinished: Collection[int]) -> int:
    return max({trial.repeat for trial in plan.trials} - {*unfinished}, default=0)


def _looked(settings: DecideSettings) -> int:
    return settings.looks[-1].round if settings.looks else 0


def _with(plan: Plan, settings: DecideSettings, look: Look) -> Plan:
    return plan.model_copy(update={"decide": settings.model_copy(update={"looks": [*settings.looks, look]})})
