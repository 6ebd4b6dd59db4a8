"""How many rounds fit in the budget of a new sweep."""

from __future__ import annotations

from experiments.config import duration
from experiments.config.errors import ConfigError
from tasks.sweep.plan import expected_seconds
from tasks.sweep.round_time import TrialTimes
from tasks.sweep.store import Plan


def rounds_that_fit(plan: Plan) -> tuple[float, int] | None:
    """For a new plan: (seconds of a round of all cells, how many of them fit in its budget). None where a cell has no history."""
    assert plan.decide is not None
    round_s = TrialTimes(expected_seconds(plan)).of_round({trial.cell: trial for trial in plan.trials}.values())
    if round_s is None or round_s <= 0:
        return None
    return round_s, min(plan.decide.most, int(plan.decide.budget_s / round_s))


def check_budget(plan: Plan) -> None:
    """For a new plan: raise ConfigError where its budget is known to be too short for one round."""
    if plan.decide is not None and (found := rounds_that_fit(plan)) is not None and found[1] < 1:
        raise too_short(plan, plan.decide.budget_s, found[0], len(plan.trials))


def too_short(plan: Plan, budget_s: float, round_s: float, trials: int) -> ConfigError:
    """What to say of a budget, s, in which no round of so many trials fits, which takes `round_s`."""
    problem = f"{duration.text(budget_s)} is too short: a round of {trials} trials takes about {duration.text(round_s)} here"
    where = "--budget" if plan.request.budget_s is not None or plan.suite.rounds is None else f"{plan.suite.file}, rounds.budget"
    return ConfigError.one(where, None, "", problem, f"give more, such as --budget {duration.text(4 * round_s)}, or --repeats 1")
