"""Which sweeps have plans that grow while they run, and by what."""

from __future__ import annotations

import math
from collections.abc import Callable

from experiments.spec.schema import MOST_ROUNDS
from experiments.trial import Outcome
from tasks.rounds.decide_plan import decide_note, one_more_round
from tasks.rounds.race_plan import one_more_heat, race_note
from tasks.sweep.aa_plan import one_more_pair
from tasks.sweep.store import Plan, SweepStore, readable_result

# (the sweep, its plan, for how long its trials have run, s) -> the plan with another round; None where it is complete
More = Callable[[SweepStore, Plan, float], Plan | None]


def growth(plan: Plan) -> More | None:
    """What adds rounds to this plan. None where all trials are planned from the start."""
    if plan.aa:
        return one_more_pair
    if plan.race:
        return one_more_heat
    return one_more_round if plan.decide else None


def seconds_run(store: SweepStore, plan: Plan) -> float:
    """For how long some of the trials that have ended ran, s: what ran side by side counts once, and no pause between two trials counts.

    Nor does one that was cancelled: it runs again, and what was cut off (tasks/sweep/batch_search.py) could else never go on in a budget
    that it had used up.
    """
    results = [result for trial in plan.trials if (result := readable_result(store, trial.key)) is not None]
    ran = [result for result in results if result.outcome is not Outcome.CANCELLED]
    total, until = 0.0, -math.inf
    for result in sorted(ran, key=lambda result: result.started_at):
        total += max(0.0, result.finished_at - max(result.started_at, until))
        until = max(until, result.finished_at)
    return total


def most_trials(plan: Plan) -> int | None:
    """How many trials a plan that grows may have in the end; None where nobody can say, as in a race or before the first round has ended.

    Every further round has as many trials as the last one at most: what is decided takes part in no more.
    """
    if plan.aa:
        return 2 * plan.aa.pairs
    if plan.decide is None or (plan.decide.expected_rounds is None and plan.decide.most == MOST_ROUNDS):
        return None
    rounds = (plan.decide.expected_rounds or plan.decide.most) - plan.last_round
    last = sum(trial.repeat == plan.last_round for trial in plan.trials)
    return min(plan.suite.limit, len(plan.trials) + max(0, rounds) * last)


def round_note(plan: Plan) -> str:
    """What is running, for the live table: `round 4 of up to 8, for the sake of bf16 · MP-1`; empty where all was planned at the start."""
    if plan.aa:
        return f"pair {len(plan.trials) // 2} of up to {plan.aa.pairs}" if plan.aa.minutes is not None else ""
    if plan.race:
        return race_note(plan)
    return "" if plan.decide is None else decide_note(plan)
