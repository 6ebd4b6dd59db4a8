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
    """For a new plan: raise ConfigError where its budget is too short for one round. Cells without history take their window at least."""
    if plan.decide is None:
        return
    first = {trial.cell: trial for trial in plan.trials}
    known = expected_seconds(plan)
    least = {cell: known.get(cell, trial.least_s) for cell, trial in first.items()}
    round_s = TrialTimes(least).of_round(first.values()) or 0.0
    if round_s > plan.decide.budget_s:
        about = "about" if known.keys() >= first.keys() else "at least"
        raise too_short(plan, plan.decide.budget_s, round_s, len(plan.trials), about=about, instead=", or --repeats 1")


def too_short(plan: Plan, budget_s: float, round_s: float, trials: int, *, about: str = "about", instead: str = "") -> ConfigError:
    """What to say of a budget, s, in which no round of so many trials fits, which takes `about` `round_s`. `instead`: of more time."""
    problem = f"{duration.text(budget_s)} is too short: a round of {trials} trials takes {about} {duration.text(round_s)} here"
    where = "--budget" if plan.request.budget_s is not None or plan.suite.rounds is None else f"{plan.suite.file}, rounds.budget"
    return ConfigError.one(where, None, "", problem, f"give more, such as --budget {duration.text(4 * round_s)}{instead}")
