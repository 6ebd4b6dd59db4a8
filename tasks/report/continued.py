"""By what command a sweep was asked for, whether it was given more time than that, and what of it was run again."""

from __future__ import annotations

import shlex
from itertools import pairwise

from experiments.config import duration
from tasks.report.text_format import listed, plural
from tasks.sweep.request_text import asked_by
from tasks.sweep.store import Plan

RESUME, CRASHED = "sweep resume --budget ...", "sweep resume --crashed"
_NAMED = 4  # trials that are named one by one
_SLACK_S = 1.0  # `--budget` is written to the second
_GO_ON = ["sweep", "campaign"]  # the same command goes on with its sweeps


def continued_to(plan: Plan) -> float | None:
    """For how long trials were to run, s, where that is more than the command asked for; else None.

    A resume changes the plan's budget and leaves its command, which is the one that runs the sweep again.
    """
    settings = plan.race or plan.decide
    words = shlex.split(plan.command)
    if settings is None:
        return None
    if words[:2] == _GO_ON:
        return plan.decide.budget_s if plan.decide and plan.decide.resumed else None
    rounds = plan.suite.rounds
    asked = [plan.request.budget_s or 0.0, duration.seconds(rounds.budget) if rounds else 0.0, _budget_in(words)]
    return settings.budget_s if settings.budget_s > max(asked) + _SLACK_S else None


def continued_text(plan: Plan) -> str:
    """`sweep resume --budget ..., up to 5 min of trials in all`; empty where the command was all."""
    budget_s = continued_to(plan)
    return "" if budget_s is None else f"{RESUME}, {in_all(budget_s)}"


def whole_command(plan: Plan) -> str:
    """`sweep run x --set steps=50, continued by sweep resume --budget ..., up to 5 min of trials in all`."""
    return ", continued by ".join(filter(None, [asked_by(plan), continued_text(plan)]))


def ran_again(plan: Plan) -> list[str]:
    """Which trials had crashed before, in a sentence; nothing where none had."""
    names = {trial.key: trial.name for trial in plan.trials}
    told = {names[one.key]: one.reason for one in plan.retried if one.key in names}
    if not told:
        return []
    which = listed([f"{name} ({reason})" if reason else name for name, reason in told.items()], _NAMED)
    return [f"{plural(len(told), 'trial')} had crashed and ran again, as `{CRASHED}` asked: {which}."]


def in_all(budget_s: float) -> str:
    return f"up to {duration.about(budget_s)} of trials in all"


def _budget_in(words: list[str]) -> float:
    """The last `--budget` of a command, s; 0 where it has none."""
    single = [part for word in words for part in (word.split("=", 1) if word.startswith("--budget=") else [word])]
    given = [after for word, after in pairwise(single) if word == "--budget"]
    return duration.seconds(given[-1]) if given else 0.0
