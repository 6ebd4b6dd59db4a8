"""A/A sweeps: arms of one cell, between which nothing differs, in turns A B B A A B ... What they differ by is what the machine does.

An arm is told apart by the axis `twin`, which is no parameter of the workload: both run the very same trial. It is part of the key, and of
the cell's identity, so that each arm is a cell with repeats of its own.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cluster.pools.pool import load_pools
from experiments.spec import matrix
from experiments.spec.schema import MAX_TRIALS, Suite
from experiments.trial import Outcome
from tasks.sweep.aa_arms import ARM, ARMS, arm_metric
from tasks.sweep.plan import TrialMaker, make_plan, once_more
from tasks.sweep.request_text import arguments_of
from tasks.sweep.store import AaSettings, Plan, Request, SweepStore

PAIRS = 20  # unless the command line says otherwise
MOST_PAIRS = 1000


def plan_aa(request: Request, *, pairs: int | None = None, minutes: float | None = None) -> Plan:
    """The plan of an A/A sweep of one cell: the suite's baseline cell among those that the request leaves, else the first of these.

    `pairs`: how many; 20 unless given, and 1000 with `minutes`. With `minutes` the plan has the first pair alone, and `one_more_pair` adds
    the others while there is time. Raises ConfigError or DatasetError, as `make_plan`.
    """
    plan, suite = make_plan(request, plain=False)
    settings = AaSettings(pairs=pairs or (PAIRS if minutes is None else MOST_PAIRS), minutes=minutes)
    maker = TrialMaker(plan.sweep_id, load_pools())
    cell = baseline_cell(matrix.expand(suite), suite)
    arms = [
        maker.make(suite, cell, 1, index, axes={**cell.axes, ARM: arm}, apart={ARM: arm}, labels={"aa.twin": arm})
        for index, arm in enumerate(ARMS)
    ]
    of_arms = {"suite": _of_arms(suite, settings.pairs), "trials": arms, "aa": settings, "decide": None, "labels": {"sweep.aa": "true"}}
    plan = plan.model_copy(update={**of_arms, "command": _command(request, plan.profile, pairs, minutes)})
    for _ in range(settings.pairs - 1 if minutes is None else 0):
        plan = _with_pair(plan)
    return plan


def baseline_cell(cells: Sequence[matrix.PlannedCell], suite: Suite) -> matrix.PlannedCell:
    """The first cell that the suite's `baseline` names, else the first of all."""
    named = (cell for cell in cells if all(matrix.same(cell.axes.get(axis), value) for axis, value in suite.baseline.items()))
    return next(named, cells[0])


def one_more_pair(store: SweepStore, plan: Plan, now_s: float) -> Plan | None:
    """The plan with another pair, while there is time for one; None where all pairs are planned, or no more is to start.

    `now_s`: for how long this flow has run trials, s, besides what earlier flows took. No pair starts either where no trial has ended ok:
    a cell that does not run will not run the next time. Raises StoreError.
    """
    settings = plan.aa
    if settings is None or settings.minutes is None or len(plan.trials) >= 2 * settings.pairs or now_s >= 60 * settings.minutes:
        return None
    return _with_pair(plan) if Outcome.OK in store.states(plan).values() else None


def _with_pair(plan: Plan) -> Plan:
    """The plan with a pair more, whose order is the reverse of the last one's: a steady drift of the machine favours neither arm."""
    last = plan.trials[-2:]
    count = len(plan.trials)
    pair = [once_more(trial, trial.repeat + 1, count + place) for place, trial in enumerate(reversed(last))]
    return plan.model_copy(update={"trials": [*plan.trials, *pair]})


def _of_arms(suite: Suite, pairs: int) -> Suite:
    """The suite whose table compares arm B with arm A."""
    metric = arm_metric(suite.report.metric)
    report = suite.report.model_copy(update={"columns": ARM, "metric": metric, "figures": [], "published": None})
    limit = min(MAX_TRIALS, max(suite.limit, 2 * pairs))
    return suite.model_copy(update={"baseline": {ARM: ARMS[0]}, "report": report, "repeats": pairs, "limit": limit})


def _command(request: Request, profile: str, pairs: int | None, minutes: float | None) -> str:
    """With what was asked for alone."""
    given = {"--pairs": str(pairs) if pairs else "", "--minutes": f"{minutes:g}" if minutes is not None else ""}
    return shlex.join(["sweep", "aa", *arguments_of(request, profile), *(word for pair in given.items() if pair[1] for word in pair)])
