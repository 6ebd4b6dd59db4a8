"""What a night measures: cells of several suites in one interleaved sweep, with the canary, the A/A twin and the slowed cell.

A B C A B C over all of them, so that whatever the machine does meets all alike, and the i-th repeat of a cell and of its canary are
neighbours in time.
"""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.git_state import git_state
from cluster.pools.pool import Pool, load_pools
from experiments import workloads
from experiments.config.errors import ConfigError
from experiments.regression.definition import METRICS, NightCells, NightFile, cell_id, drop_to_fit
from experiments.spec import matrix
from experiments.spec.load import load_suite
from experiments.spec.schema import Report, Suite
from experiments.trial import Scalar, Trial
from tasks.nightly.store import Dropped, Night, NightCell, Role
from tasks.sweep.plan import TrialMaker, expected_seconds, once_more
from tasks.sweep.store import Plan, Request

LABELS = ("night.name", "night.date", "night.cell", "night.role")


@dataclass(frozen=True)
class Wanted:
    """A cell as the definition asks for it."""

    entry: NightCells
    suite: Suite
    cell: matrix.Cell
    role: Role
    identity: str
    slowdown: float = 0.0

    @property
    def axes(self) -> dict[str, Scalar]:
        probe = {"twin": "A/A twin", "injected": f"slowed by {self.slowdown:.3g}"}.get(self.role)
        fixed = {name: self.cell.parameters[name] for name in self.entry.set if name in self.cell.parameters}
        return {"suite": self.suite.suite, **self.cell.axes, **fixed, **({"probe": probe} if probe else {})}


def plan_night(definition: NightFile, night: Night, pool_names: Sequence[str] = ()) -> tuple[Plan, Night]:
    """The night's sweep, its first look, and the night with its cells: what fits the budget. Starts nothing.

    Raises ConfigError for what the suites or pools do not know, DatasetError for data that are not there.
    """
    wanted = _wanted(definition, pool_names)
    maker = TrialMaker(night.sweep_id, load_pools())
    first = [_trial(maker, item, night, index) for index, item in enumerate(wanted)]
    plan = Plan(
        sweep_id=night.sweep_id,
        suite=_as_suite(definition, wanted),
        request=Request(suite=f"nightly-{night.name}", pools=list(pool_names)),
        profile="nightly",
        command=shlex.join(["sweep", "nightly", night.name, "--date", night.date]),
        created_at=night.opened_at,
        git=git_state(),
        trials=first,
        labels={"night.name": night.name, "night.date": night.date},
    )
    expected = expected_seconds(plan)
    cells = [_cell(item, trial, expected.get(trial.cell)) for item, trial in zip(wanted, first, strict=True)]
    dropped = _drop(cells, definition, night.budget_s)
    gone = {entry.cell for entry in dropped}
    kept = [(cell, trial) for cell, trial in zip(cells, first, strict=True) if cell.role != "history" or cell.cell not in gone]
    if all(cell.role != "history" for cell, _ in kept):
        least = definition.repeats * round_seconds([cell for cell, _ in kept])
        problem = f"{night.budget_s:.0f} s leave no time for a cell; what the night measures itself with takes {least:.0f} s"
        raise ConfigError.one(f"nightly {definition.nightly}", None, "budget", problem, "give it more")
    night = night.model_copy(update={"cells": [cell for cell, _ in kept], "dropped": dropped})
    plan = plan.model_copy(update={"trials": []})
    return with_repeats(plan, [trial for _, trial in kept], definition.repeats), night


def with_repeats(plan: Plan, templates: Sequence[Trial], repeats: int) -> Plan:
    """The plan with trials added until each of the templates' cells has so many repeats; interleaved, after what is there."""
    have: dict[str, int] = {}
    for trial in plan.trials:
        have[trial.cell] = max(have.get(trial.cell, 0), trial.repeat)
    trials = list(plan.trials)
    for repeat in range(1, repeats + 1):
        for template in templates:
            if have.get(template.cell, 0) < repeat:
                trials.append(once_more(template, repeat, len(trials)))
    return plan.model_copy(update={"trials": trials})


def templates(plan: Plan) -> dict[tuple[str, str], Trial]:
    """One trial of each cell, by (identity, role)."""
    found: dict[tuple[str, str], Trial] = {}
    for trial in plan.trials:
        found.setdefault((trial.labels["night.cell"], trial.labels["night.role"]), trial)
    return found


def round_seconds(cells: Sequence[NightCell]) -> float:
    """Expected seconds of one repeat of each; pools work side by side. What has no history counts nothing."""
    lanes: dict[str, float] = {}
    for cell in cells:
        lanes[cell.pool] = lanes.get(cell.pool, 0.0) + (cell.expected_s or 0.0)
    return max(lanes.values(), default=0.0)


def empty_night(name: str, date: str, budget_s: float) -> Night:
    """For `--plan`: a night that nobody has claimed."""
    return Night(name=name, date=date, sweep_id=f"nightly-{name}-00000000-000000-0000", opened_at=time.time(), budget_s=budget_s)


def _wanted(definition: NightFile, pool_names: Sequence[str]) -> list[Wanted]:
    known = load_pools()
    cells = [item for entry in definition.cells for item in _expand(entry, "history", known, pool_names)]
    used = {item.cell.pool for item in cells}
    canaries = []
    if definition.canary:
        canaries = list(_expand(definition.canary, "canary", known, sorted(used)))
        for pool in sorted(used):
            count = sum(item.cell.pool == pool for item in canaries)
            if count != 1:
                problem = f"gives {count} cells on pool {pool}"
                raise ConfigError.one(
                    f"nightly {definition.nightly}", None, "canary", problem, "narrow it with `only` to one for each pool"
                )
    twice = next((item for item in cells if item.suite.suite == definition.probe), None) if definition.probe else None
    probe = twice or (canaries or cells)[0]
    seen: dict[str, str] = {}
    for item in cells:
        if item.identity in seen:
            raise ConfigError.one(
                f"nightly {definition.nightly}", None, "cells", f"{item.suite.suite} names a cell twice", "keep one of them"
            )
        seen[item.identity] = item.suite.suite
    slowed = dataclasses.replace(
        probe,
        role="injected",
        slowdown=definition.injected_slowdown,
        cell=dataclasses.replace(probe.cell, parameters={**probe.cell.parameters, "injected_slowdown": definition.injected_slowdown}),
    )
    return [*canaries, *cells, dataclasses.replace(probe, role="twin"), slowed]


def _expand(entry: NightCells, role: Role, known: Mapping[str, Pool], pool_names: Sequence[str]) -> list[Wanted]:
    suite = load_suite(
        entry.suite, profile=entry.profile, pools=known, pool_names=list(pool_names) or entry.pools or None, sets=entry.set, only=entry.only
    )
    defaults = workloads.load(suite.workload).Parameters.model_construct().model_dump(mode="json")
    found = []
    for cell in matrix.expand(suite):
        if known[cell.pool].emulated:
            hint = "name a pool whose device is real: an emulated time says nothing about code"
            raise ConfigError.one(f"nightly, suite {entry.suite}", None, "pools", f"pool {cell.pool} is emulated", hint)
        identity = cell_id(suite.suite, suite.workload, cell.pool, cell.parameters, defaults)
        found.append(Wanted(entry, suite, cell, role, identity))
    if not found:
        raise ConfigError.one(f"nightly, suite {entry.suite}", None, "only", "leaves no cell", "see `sweep plan` for the suite's cells")
    return found


def _trial(maker: TrialMaker, item: Wanted, night: Night, index: int) -> Trial:
    labels = dict(zip(LABELS, (night.name, night.date, item.identity, item.role), strict=True))
    apart = {"probe": item.role} if item.role == "twin" else None
    return maker.make(item.suite, item.cell, 1, index, axes=item.axes, apart=apart, labels=labels)


def _cell(item: Wanted, trial: Trial, expected_s: float | None) -> NightCell:
    minimum = {metric: item.entry.minimum_effect.get(metric, METRICS[metric].minimum_effect) for metric in item.entry.metrics}
    return NightCell(
        cell=item.identity,
        name=trial.name.rsplit(" · #", 1)[0],
        suite=item.suite.suite,
        pool=item.cell.pool,
        role=item.role,
        value=item.entry.value,
        metrics=list(item.entry.metrics),
        minimum_effect=minimum,
        expected_s=expected_s,
    )


def _drop(cells: Sequence[NightCell], definition: NightFile, budget_s: float) -> list[Dropped]:
    """By pools' lanes: a pool that takes too long loses its lowest-value cells."""
    dropped = []
    for pool in dict.fromkeys(cell.pool for cell in cells):
        mine = [cell for cell in cells if cell.pool == pool]
        fixed = definition.repeats * sum(cell.expected_s or 0.0 for cell in mine if cell.role != "history")
        costs = {cell.cell: definition.repeats * cell.expected_s for cell in mine if cell.role == "history" and cell.expected_s is not None}
        values = {cell.cell: cell.value for cell in mine if cell.role == "history"}
        for identity in drop_to_fit(costs, values, budget_s, fixed):
            cell = next(cell for cell in mine if cell.cell == identity and cell.role == "history")
            why = f"value {cell.value:g}, {costs[identity]:.0f} s: does not fit the budget of {budget_s:.0f} s"
            dropped.append(Dropped(cell=identity, name=cell.name, why=why))
    return dropped


def _as_suite(definition: NightFile, wanted: Sequence[Wanted]) -> Suite:
    """The night's own suite: cells of several suites in one table. It has no axes, since its cells are planned already."""
    return Suite(
        suite=f"nightly-{definition.nightly}",
        description=definition.description,
        workload="",
        profile="nightly",
        file=f"experiments/nightly/{definition.nightly}.yaml",
        pools={item.cell.pool: item.suite.pools[item.cell.pool] for item in wanted},
        fixed={},
        axes={},
        linked=[],
        conditions=[],
        exclude=[],
        include=[],
        sets={},
        only={},
        parity_reference=False,
        repeats=definition.repeats,
        limit=len(wanted),
        baseline={},
        report=Report(rows=["suite", "pool"], columns=None, title=f"Night: {definition.nightly}"),
        retries=max(item.suite.retries for item in wanted),
        hang_timeout_s=max(item.suite.hang_timeout_s for item in wanted),
    )
