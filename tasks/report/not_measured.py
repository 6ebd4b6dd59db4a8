"""What was planned for a sweep and is not in it, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.trial import Trial
from tasks.report.text_format import listed, plural
from tasks.sweep.store import Plan

_NAMED = 8  # cells that are named one by one


def not_measured(plan: Plan, trials: Sequence[Trial], why: str = "") -> list[str]:
    """The cells of these trials, which were cut from the plan, without a full stop: those that have no other trial, and those that have.

    `why`: what follows `not measured`, with its space.
    """
    there = {trial.cell for trial in plan.trials}
    never = _cells([trial for trial in trials if trial.cell not in there], plan)
    fewer = _cells([trial for trial in trials if trial.cell in there], plan)
    lines = [f"{plural(len(never), 'cell')} not measured{why}: {listed(never, _NAMED)}"] if never else []
    return lines + ([f"fewer trials than planned{',' if why else ''}{why}: {listed(fewer, _NAMED)}"] if fewer else [])


def _cells(trials: Sequence[Trial], plan: Plan) -> list[str]:
    """Names of their cells, each once, by the axes in which the cells of the plan differ."""
    every = [*plan.trials, *plan.cut]
    varied = {axis for trial in every for axis in trial.axes if len({repr(one.axes.get(axis)) for one in every}) > 1}
    return list(dict.fromkeys(" · ".join(trial.labels_of(varied) or trial.labels_of(trial.axes)) for trial in trials))
