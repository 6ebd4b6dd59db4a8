"""What a request and its suite say of a sweep's budget of time."""

from __future__ import annotations

from experiments.config.duration import seconds
from experiments.config.errors import ConfigError
from experiments.spec.schema import Suite
from tasks.sweep.store import DecideSettings, Request


def decide_settings(request: Request, suite: Suite) -> DecideSettings | None:
    """The command's budget, else that of the suite's `rounds`. None where each cell has a number of repeats.

    A budget of the command's own is not ended by the suite's `most`. The first look is not before each cell has as many seeds as loss
    parity needs. Raises ConfigError for options that contradict each other.
    """
    if request.budget_s is not None and request.repeats is not None:
        raise ConfigError.one("--budget", None, "", "stands beside --repeats", "give one: a time, or a number of repeats")
    rounds = suite.rounds
    if request.budget_s is None and rounds is None:
        if request.until_decided:
            raise ConfigError.one("--until-decided", None, "", "needs a budget of time", "add --budget 25m")
        return None
    settings = DecideSettings(budget_s=request.budget_s or seconds(rounds.budget if rounds else ""))
    if rounds is not None:
        least, until = rounds.least, rounds.until_decided
        settings = settings.model_copy(update={"least": least, "until_decided": until})
        if request.budget_s is None:
            settings = settings.model_copy(update={"most": rounds.most})
    if request.until_decided is not None:
        settings = settings.model_copy(update={"until_decided": request.until_decided})
    seeds = suite.parity_reference if suite.repeats_are_seeds else 1
    return settings.model_copy(update={"least": max(settings.least, seeds), "most": max(settings.most, seeds)})
