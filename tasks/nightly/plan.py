"""What a night measures: cells of several suites in one interleaved sweep, with a canary, an A/A control and a slowed control.

The order is A B C A B C over all of them, so that a change of the machine affects all alike, and the i-th repeats of a cell and of its
canary are neighbours in time.
"""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.git_state import git_state
from cluster.pools.lanes import together_s
from cluster.pools.pool import Pool, load_pools
from cluster.source_tree import source_tree
from experiments import workloads
from experiments.config.errors import ConfigError
from experiments.non_default_parameters import default_values
from experiments.regression.definition import METRICS, NightCells, NightFile, cell_id
from experiments.spec import matrix
from experiments.spec.load import load_suite
from experiments.spec.schema import ReportSettings, Suite
from experiments.trial import Scalar, Trial
from tasks.nightly.fit import drop
from tasks.nightly.store import AA_CONTROL, SLOWED_CONTROL, Night, NightCell, Role
from tasks.sweep.plan import TrialMaker, expected_seconds, once_more
from tasks.sweep.store import Plan, Request
from tasks.sweep.variants import check_commits

LABELS = ("night.name", "night.date", "night.cell", "night.role")


@dataclass(frozen=True)
class NightEntry:
    """A cell of a suite with its part in the night. `identity` is the same on every night; `slowdown` is that of the slowed control."""

    part: NightCells  # of the definition, that the cell comes from
    suite: Suite
    cell: matrix.PlannedCell
    role: Role
    identity: str
    slowdown: float = 0.0

    @property
    def axes(self) -> dict[str, Scalar]:
        """The cell's axes in the night's table. `probe` tells the controls apart; its values are in MLflow and in the cells' keys."""
        control = {AA_CONTROL: "A/A control", SLOWED_CONTROL: f"slowed by {self.slowdown:.3g}"}.get(self.role)
        fixed = {name: self.cell.parameters[name] for name in self.part.set if name in self.cell.parameters}
        return {"suite": self.suite.suite, **self.cell.axes, **fixed, **({"probe": control} if control else {})}


def plan_night(definition: NightFile, night: Night, pool_names: Sequence[str] = ()) -> tuple[Plan, Night]:
    """The night's sweep up to the first interim analysis, and the night with the cells that fit its budget. Starts nothing.

    `pool_names`: pools to use instead of the definition's. Raises ConfigError for what suites or pools do not have, and where not one
    cell fits the budget; DatasetError for data that are missing.
    """
    entries = _entries(definition, pool_names)
    maker = TrialMaker(night.sweep_id, load_pools())
    first = [_trial(maker, entry, night, index) for index, entry in enumerate(entries)]
    plan = Plan(
        sweep_id=night.sweep_id,
        suite=_as_suite(definition, entries),
        request=Request(suite=f"nightly-{night.name}", pools=list(pool_names)),
        profile="nightly",
        command=shlex.join(["sweep", "nightly", night.name, "--date", night.date]),
        created_at=night.opened_at,
        git=git_state(),
        tree=source_tree(),
        trees=check_commits(first),
        trials=first,
        labels={"night.name": night.name, "night.date": night.date},
    )
    expected = expected_seconds(plan)
    cells = [_night_cell(entry, trial, expected.get(trial.cell)) for entry, trial in zip(entries, first, strict=True)]
    windows = [trial.least_s for trial in first]
    dropped = drop(cells, windows, definition, night.budget_s)
    left_out = {entry.cell for entry in dropped}
    kept = [(cell, trial) for cell, trial in zip(cells, first, strict=True) if cell.role != "history" or cell.cell not in left_out]
    night = night.model_copy(update={"cells": [cell for cell, _ in kept], "dropped": dropped})
    plan = plan.model_copy(update={"trials": []})
    return with_repeats(plan, [trial for _, trial in kept], definition.repeats), night


def with_repeats(plan: Plan, templates: Sequence[Trial], repeats: int) -> Plan:
    """The plan with trials added until the cell of each template has so many repeats; interleaved, after the trials that it has."""
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
    """The first trial of each cell, by (identity, role)."""
    first: dict[tuple[str, str], Trial] = {}
    for trial in plan.trials:
        first.setdefault((trial.labels["night.cell"], trial.labels["night.role"]), trial)
    return first


def round_seconds(cells: Sequence[NightCell]) -> float:
    """Expected seconds of one repeat of each cell; pools as `together_s` has them. A cell without an expected duration counts as 0 s."""
    return together_s((cell.pool, cell.expected_s or 0.0) for cell in cells)


def empty_night(name: str, date: str, budget_s: float) -> Night:
    """A night that is not on disk, for `--plan` and `sweep bisect`."""
    return Night(name=name, date=date, sweep_id=f"nightly-{name}-00000000-000000-0000", opened_at=time.time(), budget_s=budget_s)


def _entries(definition: NightFile, pool_names: Sequence[str]) -> list[NightEntry]:
    """Canaries, cells and the two controls, in the order of a round."""
    known = load_pools()
    cells = [entry for part in definition.cells for entry in _expand(part, "history", known, pool_names)]
    canaries = _canaries(definition, known, sorted({entry.cell.pool for entry in cells}))
    _check_distinct(definition, cells)
    named = [entry for entry in cells if entry.suite.suite == definition.probe] if definition.probe else []
    controlled = [*named, *canaries, *cells][0]
    size = definition.injected_slowdown
    slow_cell = dataclasses.replace(controlled.cell, parameters={**controlled.cell.parameters, "injected_slowdown": size})
    slowed = dataclasses.replace(controlled, role=SLOWED_CONTROL, slowdown=size, cell=slow_cell)
    return [*canaries, *cells, dataclasses.replace(controlled, role=AA_CONTROL), slowed]


def _canaries(definition: NightFile, known: Mapping[str, Pool], pool_names: Sequence[str]) -> list[NightEntry]:
    """One for each pool. Raises ConfigError where the definition gives a pool more, or none."""
    if not definition.canary:
        return []
    canaries = _expand(definition.canary, "canary", known, pool_names)
    for pool in pool_names:
        count = sum(entry.cell.pool == pool for entry in canaries)
        if count != 1:
            problem = f"gives {count} cells on pool {pool}"
            raise ConfigError.one(f"nightly {definition.nightly}", None, "canary", problem, "narrow it with `only` to one for each pool")
    return canaries


def _check_distinct(definition: NightFile, cells: Sequence[NightEntry]) -> None:
    """Raises ConfigError where two cells have one identity: their histories could not be told apart."""
    seen: set[str] = set()
    for entry in cells:
        if entry.identity in seen:
            problem = f"{entry.suite.suite} names a cell twice"
            raise ConfigError.one(f"nightly {definition.nightly}", None, "cells", problem, "keep one of them")
        seen.add(entry.identity)


def _expand(part: NightCells, role: Role, known: Mapping[str, Pool], pool_names: Sequence[str]) -> list[NightEntry]:
    """The cells of one part of the definition. Raises ConfigError for an emulated pool, and where no cell is left."""
    suite = load_suite(
        part.suite,
        profile=part.profile,
        pools=known,
        pool_names=list(pool_names) or part.pools or None,
        sets=part.set,
        only=part.only,
        chooser=f"nightly, suite {part.suite}: profile",
    )
    defaults = default_values(workloads.load(suite.workload).Parameters)
    entries = []
    for cell in matrix.expand(suite):
        if known[cell.pool].emulated:
            hint = "name a pool whose device is real: an emulated time says nothing about code"
            raise ConfigError.one(f"nightly, suite {part.suite}", None, "pools", f"pool {cell.pool} is emulated", hint)
        identity = cell_id(
            suite.suite, suite.workload, cell.pool, cell.parameters, defaults, environment=cell.environment, commit=cell.commit
        )
        entries.append(NightEntry(part, suite, cell, role, identity))
    if not entries:
        raise ConfigError.one(f"nightly, suite {part.suite}", None, "only", "leaves no cell", "see `sweep plan` for the suite's cells")
    return entries


def _trial(maker: TrialMaker, entry: NightEntry, night: Night, index: int) -> Trial:
    labels = dict(zip(LABELS, (night.name, night.date, entry.identity, entry.role), strict=True))
    apart = {"probe": entry.role} if entry.role == AA_CONTROL else None  # in the trial's key: else it would be the cell itself
    return maker.make(entry.suite, entry.cell, 1, index, axes=entry.axes, apart=apart, labels=labels)


def _night_cell(entry: NightEntry, trial: Trial, expected_s: float | None) -> NightCell:
    minimum = {metric: entry.part.minimum_effect.get(metric, METRICS[metric].minimum_effect) for metric in entry.part.metrics}
    return NightCell(
        cell=entry.identity,
        name=trial.name.rsplit(" · #", 1)[0],
        suite=entry.suite.suite,
        pool=entry.cell.pool,
        role=entry.role,
        value=entry.part.value,
        metrics=list(entry.part.metrics),
        minimum_effect=minimum,
        expected_s=expected_s,
    )


def _as_suite(definition: NightFile, entries: Sequence[NightEntry]) -> Suite:
    """The night's own suite: cells of several suites in one table. It has no axes, since its cells are planned already."""
    return Suite(
        suite=f"nightly-{definition.nightly}",
        description=definition.description,
        workload="",
        profile="nightly",
        file=f"experiments/nightly/{definition.nightly}.yaml",
        pools={entry.cell.pool: entry.suite.pools[entry.cell.pool] for entry in entries},
        fixed={},
        axes={},
        linked=[],
        conditions=[],
        exclude=[],
        include=[],
        sets={},
        only={},
        parity_reference=0,
        repeats=definition.repeats,
        limit=len(entries),
        same_work=list(dict.fromkeys(name for entry in entries for name in entry.suite.same_work)),
        baseline={},
        report=ReportSettings(rows=["suite", "pool"], columns=None, title=f"Night: {definition.nightly}"),
        retries=max(entry.suite.retries for entry in entries),
        retries_disturbed=max(entry.suite.retries_disturbed for entry in entries),
        hang_timeout_s=max(entry.suite.hang_timeout_s for entry in entries),
    )
