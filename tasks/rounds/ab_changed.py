"""A/B sweeps of what a change between two commits can touch: one for each suite, each with its share of the time."""

from __future__ import annotations

from experiments.config.errors import ConfigError
from tasks.rounds.ab_plan import plan_ab
from tasks.sweep.store import Plan, Request
from tasks.sweep.touched import Change
from tasks.sweep.variants import Say


def plan_changed(
    change: Change, request: Request, *, named: bool, every: bool = False, say: Say = lambda text: None
) -> tuple[Change, list[Plan]]:
    """The sweeps, and the change without the suites that turned out not to fit: where none was `named`, those whose cells A cannot run.

    The request's budget is that of all sweeps together, each of which has an equal share. Raises as `plan_ab`; for a budget that is too
    short in any case.
    """
    measured = change.measured
    plans: list[Plan] = []
    for touched in measured:
        assert request.budget_s is not None
        asked = request.model_copy(update={"suite": touched.suite, "budget_s": request.budget_s / len(measured)})
        try:
            plans.append(plan_ab(asked, change.a, change.b, every=every, devices=touched.devices, say=say))
        except ConfigError as error:
            if error.file == "--budget" and len(measured) > 1:
                raise _too_short(error, touched.suite, len(measured)) from None
            if named or error.file == "--budget":
                raise
            change = change.without(touched.suite, str(error).splitlines()[0])
    return change, plans


def _too_short(error: ConfigError, suite: str, shares: int) -> ConfigError:
    """A share is too short, of a budget that was given for all."""
    problem = f"of {shares} equal shares, that of suite {suite}: {error.problem}"
    return ConfigError.one("--budget", None, "", problem, f"give {shares} times as much as the longest needs, or fewer suites with --suite")
